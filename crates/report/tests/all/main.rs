//! Forecasts, pictures and verdicts of journals.

mod forecast;
mod forecast_laws;
mod shown;
mod verify;
