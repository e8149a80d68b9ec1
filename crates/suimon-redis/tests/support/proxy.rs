//! A way to the server on which answers can be lost.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::runtime;

/// Passes everything on between its clients and a server, unless it is told otherwise.
pub struct Proxy {
    port: u16,
    tell: Arc<Tell>,
}

#[derive(Default)]
struct Tell {
    swallow: AtomicU32,
    say: std::sync::Mutex<Option<&'static str>>,
}

impl Proxy {
    pub fn to(port: u16) -> Proxy {
        let tell = Arc::<Tell>::default();
        let told = tell.clone();
        let listener = runtime().block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let own = listener.local_addr().unwrap().port();
        runtime().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let told = told.clone();
                tokio::spawn(async move {
                    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
                    pass_on(client, server, &told).await;
                });
            }
        });
        Proxy { port: own, tell }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Cuts the connection in place of the next answers to scripts.
    pub fn swallow(&self, answers: u32) {
        self.tell.swallow.store(answers, Ordering::SeqCst);
    }

    /// Answers scripts itself, with this error.
    pub fn say(&self, error: Option<&'static str>) {
        *self.tell.say.lock().unwrap() = error;
    }
}

async fn pass_on(mut client: TcpStream, mut server: TcpStream, tell: &Tell) {
    let (mut from_client, mut from_server) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut is_script = false;
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Ok(count @ 1..) = read else { return };
                let asked = &from_client[..count];
                is_script = asked.windows(4).any(|word| word == b"EVAL");
                let say = *tell.say.lock().unwrap();
                let done = match say {
                    Some(error) if is_script => client.write_all(format!("-{error}\r\n").as_bytes()).await,
                    _ => server.write_all(asked).await,
                };
                if done.is_err() {
                    return;
                }
            }
            read = server.read(&mut from_server) => {
                let Ok(count @ 1..) = read else { return };
                let swallows = |left: u32| left.checked_sub(1);
                if is_script && tell.swallow.fetch_update(Ordering::SeqCst, Ordering::SeqCst, swallows).is_ok() {
                    return;
                }
                if client.write_all(&from_server[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}
