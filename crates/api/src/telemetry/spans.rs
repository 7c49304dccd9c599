//! Sends finished spans.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use prost::Message;
use tokio::runtime::Handle;

use super::collector::Collector;

/// The exporter behind the SDK's queue. The SDK calls it on a thread of its own.
#[derive(Debug)]
pub(super) struct Exporter {
    collector: Arc<Collector>,
    runtime: Handle,
    resource: ResourceAttributesWithSchema,
}

impl Exporter {
    /// Called within the runtime that sends.
    pub(super) fn new(collector: Arc<Collector>) -> Self {
        Self { collector, runtime: Handle::current(), resource: ResourceAttributesWithSchema::default() }
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let message = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let collector = self.collector.clone();
        let sending = self.runtime.spawn(async move { collector.post("/v1/traces", message).await });
        match sending.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                Err(OTelSdkError::InternalFailure("the collector did not take the spans".to_owned()))
            }
        }
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}
