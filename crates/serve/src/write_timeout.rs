//! Closes connections whose reader does not read. Otherwise such a reader keeps a connection, and its pending
//! output, for ever.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::time::Duration;

use axum::serve::Listener;
use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};
use tokio_io_timeout::TimeoutStream;

/// A connection that ends when nothing could be sent for that long.
pub(crate) type Patient<S> = Pin<Box<TimeoutStream<S>>>;

fn with_write_timeout<S: AsyncRead + AsyncWrite>(stream: S, stalled: Duration) -> Patient<S> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(stalled));
    Box::pin(stream)
}

/// A socket whose connections are such.
pub(crate) struct PatientListener {
    pub(crate) listener: UnixListener,
    pub(crate) stalled: Duration,
}

impl Listener for PatientListener {
    type Io = Patient<UnixStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, from) = Listener::accept(&mut self.listener).await;
        (with_write_timeout(stream, self.stalled), from)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// The same of connections to an address, before anything is said over them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PatientAcceptor {
    pub(crate) stalled: Duration,
}

impl<I: AsyncRead + AsyncWrite, S> Accept<I, S> for PatientAcceptor {
    type Stream = Patient<I>;
    type Service = S;
    type Future = Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        ready(Ok((with_write_timeout(stream, self.stalled), service)))
    }
}
