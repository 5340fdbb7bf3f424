//! Throwaway real clusters on one machine.
