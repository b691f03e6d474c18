//! Controllers, stores, probes and the command line of proxy-operator

fn main() {}
