//! `call_vs_grpc`: the same `get` as `call_vs_wasmtime`, against a plugin that is a gRPC server on loopback: tonic, one
//! HTTP/2 connection that stays open, messages with the same fields and bytes, and the same work natively: parse the
//! config, take the id apart, compose the answer. The server asks nobody back, which a real one would do.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use anyhow::{Result, anyhow, ensure};
use proxy_operator_core::provider::Provider as _;
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::kvm;
use crate::report::Report;
use crate::sample::{in_turn, runtime};

/// Calls of each.
const PAIRS: usize = 5_000;
const PATH: &str = "/provider.Provider/Get";

/// `provider.get`'s arguments.
#[derive(Clone, PartialEq, prost::Message)]
struct Get {
    #[prost(string, tag = "1")]
    provider: String,
    #[prost(string, tag = "2")]
    cluster_id: String,
    #[prost(string, tag = "3")]
    name_prefix: String,
    #[prost(string, tag = "4")]
    config: String,
    #[prost(uint32, tag = "5")]
    timeout_ms: u32,
    #[prost(string, tag = "6")]
    id: String,
    #[prost(string, tag = "7")]
    owner: String,
    #[prost(string, optional, tag = "8")]
    private_state: Option<String>,
}

/// An address of an instance.
#[derive(Clone, PartialEq, prost::Message)]
struct Address {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(int32, tag = "2")]
    source: i32,
}

/// What `provider.get` returns.
#[derive(Clone, PartialEq, prost::Message)]
struct Instance {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    owner: String,
    #[prost(int32, tag = "3")]
    phase: i32,
    #[prost(string, tag = "4")]
    reason: String,
    #[prost(string, tag = "5")]
    message: String,
    #[prost(string, optional, tag = "6")]
    endpoint: Option<String>,
    #[prost(message, repeated, tag = "7")]
    addresses: Vec<Address>,
    #[prost(string, optional, tag = "8")]
    created_at: Option<String>,
}

/// The plugin as a server.
#[derive(Clone)]
struct Plugin;

/// The server, on a thread of its own as a process would have one. It ends when this is dropped.
struct Serving {
    address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let server = Serving::start()?;
    runtime()?.block_on(async {
        let provider = kvm::provider().await?;
        let channel = Endpoint::from_shared(format!("http://{}", server.address))?.tcp_nodelay(true).connect().await?;
        let mut client = tonic::client::Grpc::new(channel);
        let instance = kvm::instance();
        let request = request();
        let ours = provider.get(&instance).await?;
        let theirs = get(&mut client, request.clone()).await?;
        ensure!(ours.id == theirs.id && ours.message == theirs.message, "{ours:?} is not {theirs:?}");

        let host = async || provider.get(&instance).await.map(drop).map_err(Into::into);
        let grpc = async || get(&mut client, request.clone()).await.map(drop);
        let medians = in_turn(PAIRS, host, grpc).await?;
        report.put("call_vs_grpc", medians.ratio());
        report.put("call_get_beside_grpc_p50_us", medians.measured_us);
        report.put("call_grpc_p50_us", medians.baseline_us);
        Ok(())
    })
}

fn request() -> Get {
    let proxy_operator_core::provider::InstanceRef { id, owner, private_state } = kvm::instance();
    Get {
        provider: kvm::PROVIDER.to_owned(),
        cluster_id: kvm::CLUSTER.to_owned(),
        name_prefix: kvm::PREFIX.to_owned(),
        config: kvm::config().to_string(),
        timeout_ms: 30_000,
        id,
        owner,
        private_state,
    }
}

async fn get(client: &mut tonic::client::Grpc<Channel>, request: Get) -> Result<Instance> {
    client.ready().await?;
    let path = http::uri::PathAndQuery::from_static(PATH);
    let answer = client.unary(Request::new(request), path, ProstCodec::<Get, Instance>::default()).await?;
    Ok(answer.into_inner())
}

/// What the plugin does for a `get`, natively.
fn look(get: &Get) -> Result<Instance, Status> {
    let invalid = |_| Status::invalid_argument("the config is not JSON");
    let _config: serde_json::Value = serde_json::from_str(&get.config).map_err(invalid)?;
    let name = get.id.strip_prefix(&format!("hosts/{}/domains/", kvm::HOST));
    let name = name.ok_or_else(|| Status::invalid_argument("no id of this provider"))?;
    if name.strip_prefix(&get.name_prefix) != Some(&get.owner) {
        return Err(Status::already_exists("another's"));
    }
    let host = kvm::ADDRESS.to_owned();
    Ok(Instance {
        id: format!("hosts/{}/domains/{name}", kvm::HOST),
        owner: get.owner.clone(),
        phase: 1,
        reason: "AddressFromAgent".to_owned(),
        message: format!("{host} from the guest agent"),
        endpoint: Some(host.clone()),
        addresses: vec![Address { host, source: 1 }],
        created_at: Some(kvm::CREATED.to_owned()),
    })
}

// === impl Plugin ===

impl tonic::server::NamedService for Plugin {
    const NAME: &'static str = "provider.Provider";
}

impl tonic::server::UnaryService<Get> for Plugin {
    type Response = Instance;
    type Future = BoxFuture<Response<Instance>, Status>;

    fn call(&mut self, request: Request<Get>) -> Self::Future {
        Box::pin(async move { look(request.get_ref()).map(Response::new) })
    }
}

impl<B> Service<http::Request<B>> for Plugin
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let plugin = self.clone();
        Box::pin(async move {
            // It has one method, hence no look at the path.
            let mut grpc = tonic::server::Grpc::new(ProstCodec::<Instance, Get>::default());
            Ok(grpc.unary(plugin, request).await)
        })
    }
}

// === impl Serving ===

impl Serving {
    fn start() -> Result<Self> {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let serve = move || {
            runtime.block_on(async {
                let Ok(listener) = tokio::net::TcpListener::bind("127.0.0.1:0").await else { return };
                let Ok(address) = listener.local_addr() else { return };
                let incoming = tonic::transport::server::TcpIncoming::from(listener).with_nodelay(Some(true));
                let _ = tell.send(address);
                let ended = async { drop(stopped.await) };
                let _ = Server::builder().add_service(Plugin).serve_with_incoming_shutdown(incoming, ended).await;
            });
        };
        let thread = std::thread::Builder::new().name("grpc-plugin".to_owned()).spawn(serve)?;
        let address = told.recv().map_err(|_| anyhow!("the gRPC server did not start"))?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
