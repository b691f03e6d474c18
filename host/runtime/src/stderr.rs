//! A guest's standard error: where toolchains that know only WASI write a panic message or a traceback.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::limits;
use crate::watch::Watch;

/// Takes all that is written, at once, and keeps its end for the error of a trap.
#[derive(Clone)]
pub(crate) struct Stderr(pub(crate) Arc<Watch>);

impl StdoutStream for Stderr {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

impl IsTerminal for Stderr {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl OutputStream for Stderr {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0.stderr(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(limits::STDERR_WRITE)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Stderr {
    async fn ready(&mut self) {}
}

impl AsyncWrite for Stderr {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.stderr(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest_log::LogRate;
    use crate::redact::Redactor;

    #[test]
    fn the_end_of_it_is_kept() {
        let watch = Watch::new(Redactor::default(), Arc::new(LogRate::new()));
        let mut stderr = Stderr(Arc::clone(&watch)).p2_stream();
        for number in 0..10_000 {
            stderr.write(format!("line {number}\n").into()).unwrap();
        }
        stderr.write("thread main panicked: ü".into()).unwrap();
        let words = watch.last_words().unwrap();
        assert!(words.ends_with("line 9999\\nthread main panicked: ü"), "{words}");
        assert!(words.len() <= limits::LAST_WORDS);
        watch.fatal("what the panic hook said");
        assert_eq!(watch.last_words().unwrap(), "what the panic hook said");
    }
}
