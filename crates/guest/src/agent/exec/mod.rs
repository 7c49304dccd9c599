//! Commands: started once, watched by any number of streams, remembered after their end.

mod attach;
mod finish;
mod flow;
mod start;
