//! Private servers: there when they say so, gone when they are dropped.

#![cfg(all(feature = "servers", unix))]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use suimon_testkit::servers::{MariaDb, Postgres};

/// The host and port of a URL.
fn address(url: &str) -> String {
    url.split(['@', '/']).find(|part| part.contains("127.0.0.1")).expect(url).to_owned()
}

/// Sends what asks for a greeting, and waits long for one.
fn answers(url: &str, request: &[u8]) -> bool {
    answers_within(url, request, Duration::from_secs(20))
}

fn answers_within(url: &str, request: &[u8], time: Duration) -> bool {
    let Ok(mut stream) = TcpStream::connect(address(url)) else { return false };
    stream.set_read_timeout(Some(time)).unwrap();
    stream.write_all(request).unwrap();
    stream.read_exact(&mut [0]).is_ok()
}

/// May it be encrypted? One byte answers.
const POSTGRES: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];

macro_rules! goes_through_its_life {
    ($name:ident, $kind:ident, $request:expr) => {
        #[test]
        fn $name() {
            let mut server = $kind::start();
            let url = server.url();
            let other = $kind::start();
            assert_ne!(address(&url), address(&other.url()));
            assert!(answers(&url, $request));
            server.pause();
            assert!(!answers_within(&url, $request, Duration::from_millis(300)));
            server.resume();
            assert!(answers(&url, $request));
            for end in [$kind::kill, $kind::stop] {
                end(&mut server);
                assert!(TcpStream::connect(address(&url)).is_err());
                server.restart();
                assert_eq!(server.url(), url);
                assert!(answers(&url, $request));
            }
            server.restart();
            server.pause();
            drop(server);
            assert!(TcpStream::connect(address(&url)).is_err());
            assert!(answers(&other.url(), $request));
        }
    };
}

goes_through_its_life!(postgres, Postgres, POSTGRES);
goes_through_its_life!(mariadb, MariaDb, b"");
