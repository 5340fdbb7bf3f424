//! The facts half of the Ceph backend on recorded answers, on maps made at random, and on garbage.

mod cluster;
mod facts;
mod garbage;
mod laws;
mod oktostop;
mod target;
mod translate;
