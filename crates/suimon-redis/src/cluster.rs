//! Sending to a cluster.

use redis::aio::ConnectionLike;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::SingleNodeRoutingInfo;
use redis::{Cmd, RedisError, Value};

/// Sends a command to the node of its keys.
///
/// The library below is told never to retry: it does that after a lost connection
/// as well, and would charge twice. So what it would follow is followed here: a slot that has
/// moved (it then knows where to), and one that is being moved.
pub(crate) async fn send(mut connection: ClusterConnection, command: &Cmd) -> Result<Value, RedisError> {
    let answer = connection.req_packed_command(command).await.and_then(Value::extract_error);
    let Err(error) = answer else { return answer };
    let Some((node, _slot)) = error.redirect_node() else { return Err(error) };
    let Some((host, port)) = node.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?))) else {
        return Err(error);
    };
    let to = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port };
    let mut both = redis::pipe();
    both.cmd("ASKING").add_command(command.clone());
    match connection.route_pipeline(both, 0, 2, to).await {
        Ok(mut answers) => answers.pop().map_or(Err(error), Value::extract_error),
        Err(error) => Err(error),
    }
}
