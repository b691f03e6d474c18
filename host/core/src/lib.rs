//! Decisions without IO: what a Proxy needs next, names, error classes, backoff
