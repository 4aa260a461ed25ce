//! Logs: klog text lines or JSON on stderr, filtered by `-v` or `RUST_LOG` (docs/design/operations.md#logs).

use std::fmt::{self, Write as _};

use jiff::tz::TimeZone;
use olm_runtime::component::Component;
use olm_runtime::traces::TRACES;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::flags::{LogFormat, ServiceFlags};
use crate::traces;

/// Starts logs and traces of the process. Further calls have no effect.
pub fn start(component: Component, flags: &ServiceFlags) {
    if tracing::dispatcher::has_been_set() {
        return;
    }
    let filter = filter(flags.verbosity);
    let records = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let records = match flags.log_format {
        LogFormat::Klog => {
            let format = Klog { headers: !flags.skip_headers, pid: std::process::id() };
            records.with_ansi(false).event_format(format).with_filter(filter).boxed()
        }
        LogFormat::Json => {
            records.json().flatten_event(true).with_span_list(false).with_filter(filter).boxed()
        }
    };
    let (exported, error) = match traces::layer(component) {
        Ok(exported) => (exported, None),
        Err(error) => (None, Some(error)),
    };
    let layers: Vec<_> = exported.into_iter().chain([records]).collect();
    // Fails if another thread was faster.
    drop(tracing_subscriber::registry().with(layers).try_init());
    if let Some(error) = error {
        tracing::error!(%error, "traces are disabled: correct the OTEL_ variables of the Deployment");
    }
}

/// Filter of `RUST_LOG`, else of a klog verbosity. Spans that are only exported add nothing to records.
fn filter(verbosity: u8) -> EnvFilter {
    // All directives are constants and valid. Invalid ones would be ignored.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(directives(verbosity)));
    let unlogged = format!("{TRACES}=off").parse();
    unlogged.into_iter().fold(filter, EnvFilter::add_directive)
}

/// Filter directives of a klog verbosity: our crates at debug from 1 and at trace from 4, libraries later.
fn directives(verbosity: u8) -> &'static str {
    match verbosity {
        0 => "info,kube_runtime=warn,kube_client=warn",
        1..=3 => {
            "debug,kube_runtime=warn,kube_client=warn,hyper=warn,hyper_util=warn,reqwest=warn,rustls=warn,tower=warn,h2=warn,oci_client=warn"
        }
        4..=5 => {
            "trace,kube_runtime=info,kube_client=info,hyper=warn,hyper_util=warn,reqwest=info,rustls=warn,tower=warn,h2=warn"
        }
        _ => "trace",
    }
}

/// Format `I1121 07:24:25.876279   16594 reconcile:41] "reconcile ending" catalog="x"`, followed by the fields of
/// the spans.
struct Klog {
    headers: bool,
    pid: u32,
}

impl<S, N> FormatEvent<S, N> for Klog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        if self.headers {
            let severity = match *metadata.level() {
                Level::ERROR => 'E',
                Level::WARN => 'W',
                _ => 'I',
            };
            let now = jiff::Timestamp::now().to_zoned(TimeZone::UTC);
            let (place, line) = (metadata.target(), metadata.line().unwrap_or(0));
            write!(out, "{severity}{} {:>7} {place}:{line}] ", now.strftime("%m%d %H:%M:%S.%6f"), self.pid)?;
        }
        let mut record = Record::default();
        event.record(&mut record);
        write!(out, "{:?}{}", record.message, record.fields)?;
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) =
                span.extensions().get::<FormattedFields<N>>().filter(|fields| !fields.is_empty())
            {
                write!(out, " {fields}")?;
            }
        }
        writeln!(out)
    }
}

#[derive(Default)]
struct Record {
    message: String,
    fields: String,
}

impl Visit for Record {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(self.fields, " {}={value:?}", field.name());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.message, "{value:?}");
            return;
        }
        let text = format!("{value:?}");
        let is_bare =
            text.starts_with('"') || text.parse::<f64>().is_ok() || text == "true" || text == "false";
        if is_bare {
            let _ = write!(self.fields, " {}={text}", field.name());
        } else {
            self.record_str(field, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn exported_spans_are_not_in_records() {
        let sink = Sink::default();
        let writer = sink.clone();
        let records = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .event_format(Klog { headers: false, pid: 1 })
            .with_filter(filter(8));
        // The other layer enables the span, as that of the exporter does.
        let others = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(std::io::sink);
        let subscriber = tracing_subscriber::registry().with(others).with(records);
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("reconcile", object = "a").entered();
            let _exported = tracing::info_span!(target: TRACES, "resolve", package = "b").entered();
            tracing::info!("resolved");
            olm_runtime::traces::failed(&"x");
        });
        assert_eq!(String::from_utf8(sink.0.lock().unwrap().clone()).unwrap(), "\"resolved\" object=\"a\"\n");
    }

    #[test]
    fn klog_format_has_event_and_span_fields() {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .event_format(Klog { headers: false, pid: 1 })
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let error = std::io::Error::other("no \"x\"");
            tracing::info!(catalog = "a", attempt = 2, done = true, %error, "reconcile ending");
            let _span = tracing::info_span!("reconcile", controller = "c", reconcile_id = %7).entered();
            tracing::info!(name = "a", "applied revision");
            let hidden = "\u{1b}[2J\u{202e}";
            tracing::warn!(name = hidden, error = %hidden, "unknown verb {hidden}");
        });
        let text = String::from_utf8(sink.0.lock().unwrap().clone()).unwrap();
        assert_eq!(
            text,
            "\"reconcile ending\" catalog=\"a\" attempt=2 done=true error=\"no \\\"x\\\"\"\n\
             \"applied revision\" name=\"a\" controller=\"c\" reconcile_id=7\n\
             \"unknown verb \\u{1b}[2J\\u{202e}\" name=\"\\u{1b}[2J\\u{202e}\" error=\"\\u{1b}[2J\\u{202e}\" \
             controller=\"c\" reconcile_id=7\n"
        );
    }
}
