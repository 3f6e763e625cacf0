use std::time::Duration;

use futures::future::join_all;
use serde::Deserialize;

use super::super::http::shared_client;
use super::OpenAiChat;

/// Where local servers listen by default: llama.cpp (new and old), Ollama, LM Studio, vLLM.
const PORTS: [u16; 5] = [9931, 8080, 11434, 1234, 8000];

/// How long a server may take to list its models.
const PATIENCE: Duration = Duration::from_millis(500);

/// A local OpenAI-compatible server that answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LocalServer {
    /// The provider.
    pub provider: OpenAiChat,
    /// The first model that it lists.
    pub model: String,
    /// Its address.
    pub base_url: String,
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
}

impl LocalServer {
    /// Looks for a server: at the address in `ZIDANE_BASE_URL` if that is set, else at the usual local ports. `None`
    /// when none lists a model within half a second. Nothing but loopback is tried without the variable.
    pub async fn find() -> Option<Self> {
        let addresses = match std::env::var("ZIDANE_BASE_URL") {
            Ok(url) if !url.trim().is_empty() => vec![url.trim().to_owned()],
            _ => PORTS.iter().map(|port| format!("http://127.0.0.1:{port}/v1")).collect(),
        };
        let asked = addresses.iter().map(|address| Self::ask(address));
        join_all(asked).await.into_iter().flatten().next()
    }

    async fn ask(address: &str) -> Option<Self> {
        let client = shared_client(address.starts_with("http:")).await.ok()?;
        let address = address.trim_end_matches('/');
        let base_url = if address.ends_with("/v1") { address.to_owned() } else { format!("{address}/v1") };
        let response = client.get(format!("{base_url}/models")).timeout(PATIENCE).send().await.ok()?;
        let body = response.error_for_status().ok()?.bytes().await.ok()?;
        let models: Models = serde_json::from_slice(&body).ok()?;
        let model = models.data.into_iter().next()?.id;
        Some(Self { provider: OpenAiChat::compatible(base_url.as_str()).ok()?, model, base_url })
    }
}
