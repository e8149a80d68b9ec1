//! A wire between a store and its server that can be counted on, and cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Place, block_on, runtime};

/// Listens, and passes on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxy(Arc<Wire>);

#[derive(Debug, Default)]
struct Wire {
    /// How often the client has said something after the server did.
    trips: AtomicUsize,
    /// Was it the client that spoke last?
    asked: AtomicBool,
    /// The answer to the trip of this number, from 1, is swallowed, and the connection cut.
    cut: AtomicUsize,
}

impl Proxy {
    /// A proxy, and the place as it is reached through it.
    pub(crate) fn before(place: &Place) -> (Proxy, Place) {
        let proxy = Proxy::default();
        let (before, rest) = place.url.split_once("127.0.0.1:").unwrap();
        let (port, path) = rest.split_once('/').unwrap();
        let server = format!("127.0.0.1:{port}");
        let listener = block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("{before}{}/{path}", listener.local_addr().unwrap());
        let wire = proxy.0.clone();
        runtime().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                runtime().spawn(pass(from_client, to_server, wire.clone(), true));
                runtime().spawn(pass(from_server, to_client, wire.clone(), false));
            }
        });
        (proxy, Place { url, ..place.clone() })
    }

    /// How many round trips there were since the last time.
    pub(crate) fn trips(&self) -> usize {
        self.0.trips.swap(0, Ordering::SeqCst)
    }

    /// Swallows the answer to the trip of this number from now on.
    pub(crate) fn cut(&self, trip: usize) {
        self.0.trips.store(0, Ordering::SeqCst);
        self.0.cut.store(trip, Ordering::SeqCst);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, wire: Arc<Wire>, is_client: bool) {
    let mut buffer = [0; 65_536];
    while let Ok(len @ 1..) = from.read(&mut buffer).await {
        if wire.asked.swap(is_client, Ordering::SeqCst) != is_client && is_client {
            wire.trips.fetch_add(1, Ordering::SeqCst);
        }
        let cut = wire.cut.load(Ordering::SeqCst);
        if !is_client && cut > 0 && wire.trips.load(Ordering::SeqCst) >= cut {
            wire.cut.store(0, Ordering::SeqCst);
            break;
        }
        if to.write_all(&buffer[..len]).await.is_err() {
            break;
        }
    }
}
