//! Starts real libvirtd, sshd, squid and guests for tests
