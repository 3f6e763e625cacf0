//! The spans of a run, exported by OpenTelemetry to standard output.
//!
//! ```sh
//! cargo run --example otel
//! ```
//!
//! The model is a scripted one, so that no key and no collector is needed; with the exporter of `opentelemetry-otlp` in
//! the place of the one here the same spans go to a collector.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde::Deserialize;
use tracing_subscriber::layer::SubscriberExt as _;
use zidane::testing::{Reply, ScriptedProvider};
use zidane::{Agent, tool_fn};

#[derive(Deserialize, schemars::JsonSchema)]
struct Weather {
    city: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let exporter = opentelemetry_stdout::SpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter).build();
    let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("zidane"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(spans))?;

    let model = ScriptedProvider::new([
        Reply::call("weather", serde_json::json!({ "city": "Lyon" })),
        Reply::text("It is 21 °C in Lyon, and clear."),
    ]);
    let agent = Agent::builder()
        .provider(model)
        .model("scripted-1")
        .tool(tool_fn("weather", "Current weather of a city", |input: Weather, _cx| async move {
            Ok(format!("{}: 21 °C, clear", input.city))
        }))
        // What is said stays out of the spans unless it is asked for.
        .trace_content(std::env::args().any(|arg| arg == "--content"))
        .build()?;
    let outcome = agent.run("What is the weather in Lyon?").await?;
    println!("{}", outcome.text);
    provider.shutdown()?;
    Ok(())
}
