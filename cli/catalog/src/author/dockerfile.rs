//! `olm catalog generate dockerfile`: the Dockerfile of a catalog image, for builds with a container engine and for
//! clusters with classic OLM (docs/design/cli.md#generated-dockerfiles).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use olm_cli_core::error::CliError;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_oci::{CATALOG_LABEL, Reference};
use olm_version::quote;

use super::catalog_dir::failed;

const OPM: &str = "quay.io/operator-framework/opm:latest";
/// Base image without content.
const SCRATCH: &str = "scratch";

/// Subcommands of `olm catalog generate`.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  {olm} catalog generate dockerfile ./catalog")]
pub enum GenerateCommand {
    /// Generate the Dockerfile of a catalog
    #[command(long_about = ABOUT)]
    Dockerfile(DockerfileArgs),
}

/// Help text of `olm catalog generate dockerfile`.
const ABOUT: &str = "Generate the Dockerfile of a catalog

Writes DIR.Dockerfile, next to the directory, unless it exists. The image starts the gRPC server of opm, which classic \
OLM needs, with a filled cache. OLM v1 reads the same image. With --base-image scratch, classic OLM brings its own opm. \
With --content-only, the image has nothing but the catalog, for OLM v1: `catalog push` makes such an image without a \
Dockerfile.";

/// Arguments of `olm catalog generate dockerfile`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} catalog generate dockerfile ./catalog
  {olm} catalog generate dockerfile ./catalog -i scratch -l com.example.team=storage
  {olm} catalog generate dockerfile ./catalog --content-only")]
pub struct DockerfileArgs {
    /// Catalog directory
    #[arg(value_name = "DIR")]
    catalog: PathBuf,
    /// Image with opm that serves the catalog, or scratch
    #[arg(short = 'i', long, value_name = "IMAGE", default_value = OPM)]
    base_image: String,
    /// Image with opm that fills the cache
    #[arg(short, long, value_name = "IMAGE", default_value = OPM)]
    builder_image: String,
    /// Additional label of the image; may be given several times
    #[arg(short = 'l', long = "extra-labels", value_name = "KEY=VALUE", value_delimiter = ',')]
    labels: Vec<String>,
    /// Only the catalog, without opm
    #[arg(long, conflicts_with_all = ["base_image", "builder_image"])]
    content_only: bool,
}

/// Runs the command.
///
/// # Errors
/// The directory does not exist, the Dockerfile does, or an argument is invalid.
pub(crate) fn run(command: GenerateCommand, session: &mut Session) -> Result<(), CliError> {
    let GenerateCommand::Dockerfile(args) = command;
    let Some(name) = args.catalog.file_name() else {
        let why = "specify a path that ends with a name: the Dockerfile is named after the directory";
        return Err(CliError::usage(format!("{}: {why}", args.catalog.display())));
    };
    let name = name.to_str().ok_or_else(|| CliError::usage("the name of the directory is not UTF-8"))?;
    let file = Dockerfile::new(name, &args)?;
    if !args.catalog.is_dir() {
        return Err(CliError::usage(format!("{} is not a directory", args.catalog.display())));
    }
    let parent = args.catalog.parent().unwrap_or_else(|| Path::new(""));
    let path = parent.join(format!("{name}.Dockerfile"));
    let mut created = File::create_new(&path).map_err(|error| failed("create", &path, &error))?;
    created.write_all(file.text().as_bytes()).map_err(|error| failed("write", &path, &error))?;
    session.output.text(&format!("{}\n", olm_cli_core::output::printable(&path.display().to_string())))?;
    file.next_steps(&args.catalog, &path).iter().for_each(|line| say(line));
    Ok(())
}

/// Content of a Dockerfile.
#[derive(Debug)]
struct Dockerfile<'a> {
    /// Name of the catalog directory in the build context.
    catalog: &'a str,
    /// Image that fills the cache, and image that serves the catalog. `None` for an image without opm.
    opm: Option<(&'a str, &'a str)>,
    labels: BTreeMap<&'a str, &'a str>,
}

impl<'a> Dockerfile<'a> {
    fn new(catalog: &'a str, args: &'a DockerfileArgs) -> Result<Self, CliError> {
        let (builder, base) = (args.builder_image.as_str(), args.base_image.as_str());
        if builder == SCRATCH {
            return Err(CliError::usage(format!("invalid builder image: {}", quote(builder))));
        }
        for image in [builder, base].into_iter().filter(|image| *image != SCRATCH) {
            image.parse::<Reference>().map_err(CliError::usage)?;
        }
        let mut labels = BTreeMap::new();
        for label in &args.labels {
            let wrong = |why: &str| CliError::usage(format!("invalid label {}: {why}", quote(label)));
            let (key, value) = label.split_once('=').ok_or_else(|| wrong("expected KEY=VALUE"))?;
            if key.is_empty() || label.contains(char::is_control) {
                return Err(wrong("expected KEY=VALUE on one line"));
            }
            if key == CATALOG_LABEL {
                return Err(wrong("it is the label of the catalog directory"));
            }
            labels.insert(key, value);
        }
        Ok(Self { catalog, opm: (!args.content_only).then_some((builder, base)), labels })
    }

    fn text(&self) -> String {
        let source = serde_json::json!(self.catalog);
        let mut text = String::new();
        match self.opm {
            None => text += &format!("FROM {SCRATCH}\nCOPY [{source}, \"/configs\"]\n"),
            Some((builder, base)) => {
                text += &format!(
                    "# Fill the cache of opm with the catalog.\nFROM {builder} AS builder\n\
                     COPY [{source}, \"/configs\"]\n\
                     RUN [\"/bin/opm\", \"serve\", \"/configs\", \"--cache-dir=/tmp/cache\", \"--cache-only\"]\n\n\
                     FROM {base}\n"
                );
                text += if base == SCRATCH { EXTRACTED } else { SERVED };
                text += "COPY --from=builder /configs /configs\nCOPY --from=builder /tmp/cache /tmp/cache\n";
            }
        }
        text += &format!("\n# Location of the catalog in the image.\nLABEL {CATALOG_LABEL}=/configs\n");
        for (key, value) in &self.labels {
            // Writing to a string does not fail.
            let _ = writeln!(text, "LABEL {}={}", quoted(key), quoted(value));
        }
        text
    }

    /// Commands that publish the catalog.
    fn next_steps(&self, catalog: &Path, path: &Path) -> Vec<String> {
        let (catalog, parent) = (catalog.display(), path.parent().filter(|parent| *parent != Path::new("")));
        let context = parent.unwrap_or_else(|| Path::new(".")).display();
        let image = "REGISTRY/REPOSITORY:TAG";
        let mut steps = vec![
            "Next steps:".to_owned(),
            format!("  olm validate {catalog}"),
            format!("  docker build -f {} -t {image} {context}", path.display()),
            format!("  docker push {image}"),
        ];
        let v1 = "spec.source.image.ref of a ClusterCatalog";
        steps.push(match self.opm {
            None => format!("Set {image} as {v1}."),
            Some(_) => format!("Set {image} as spec.image of a CatalogSource, or as {v1}."),
        });
        steps.iter().map(|line| olm_cli_core::output::printable(line)).collect()
    }
}

/// Lines of an image that has opm.
const SERVED: &str = "# The image must have /bin/opm, and /bin/grpc_health_probe for the probes of classic OLM.\n\
                      ENTRYPOINT [\"/bin/opm\"]\nCMD [\"serve\", \"/configs\", \"--cache-dir=/tmp/cache\"]\n";

/// Lines of an image whose content classic OLM extracts.
const EXTRACTED: &str = "# A CatalogSource needs these fields, so that classic OLM serves the content with its own opm:\n\
                         #   spec:\n#     grpcPodConfig:\n#       extractContent:\n\
                         #         catalogDir: /configs\n#         cacheDir: /tmp/cache\n";

/// Text in double quotes, without expansion of variables.
fn quoted(text: &str) -> String {
    let escaped = |c: char| if matches!(c, '"' | '\\' | '$') { format!("\\{c}") } else { c.to_string() };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(change: impl FnOnce(&mut DockerfileArgs)) -> DockerfileArgs {
        let mut args = DockerfileArgs {
            catalog: PathBuf::from("catalog"),
            base_image: OPM.to_owned(),
            builder_image: OPM.to_owned(),
            labels: Vec::new(),
            content_only: false,
        };
        change(&mut args);
        args
    }

    #[test]
    fn dockerfile_follows_from_base_image_and_labels() {
        let text = |args: &DockerfileArgs| Dockerfile::new("catalog", args).unwrap().text();
        let label = "\n# Location of the catalog in the image.\nLABEL operators.operatorframework.io.index.configs.v1=/configs\n";
        let builder = |image: &str| {
            format!(
                "# Fill the cache of opm with the catalog.\nFROM {image} AS builder\nCOPY [\"catalog\", \"/configs\"]\n\
                 RUN [\"/bin/opm\", \"serve\", \"/configs\", \"--cache-dir=/tmp/cache\", \"--cache-only\"]\n"
            )
        };
        let copied = "COPY --from=builder /configs /configs\nCOPY --from=builder /tmp/cache /tmp/cache\n";
        assert_eq!(text(&args(|_| ())), format!("{}\nFROM {OPM}\n{SERVED}{copied}{label}", builder(OPM)));
        let scratch = args(|args| {
            args.base_image = SCRATCH.to_owned();
            args.builder_image = "r.example/opm:v1".to_owned();
        });
        let expected = format!("{}\nFROM scratch\n{EXTRACTED}{copied}{label}", builder("r.example/opm:v1"));
        assert_eq!(text(&scratch), expected);
        let content = args(|args| {
            args.content_only = true;
            args.labels = ["b=1", "a=x=y", "b=$2 \"\\"].map(str::to_owned).into();
        });
        let labels = "LABEL \"a\"=\"x=y\"\nLABEL \"b\"=\"\\$2 \\\"\\\\\"\n";
        let expected = format!("FROM scratch\nCOPY [\"catalog\", \"/configs\"]\n{label}{labels}");
        assert_eq!(text(&content), expected);
    }

    #[test]
    fn invalid_argument_is_rejected() {
        type Change = fn(&mut DockerfileArgs);
        let cases: [(Change, &str); 5] = [
            (|args| args.builder_image = SCRATCH.to_owned(), "invalid builder image: \"scratch\""),
            (|args| args.base_image = "a b".to_owned(), "error parsing image reference \"a b\": "),
            (|args| args.labels = vec!["a".to_owned()], "invalid label \"a\": expected KEY=VALUE"),
            (|args| args.labels = vec!["a=b\nRUN x".to_owned()], "invalid label \"a=b\\nRUN x\": "),
            (|args| args.labels = vec![format!("{CATALOG_LABEL}=/x")], "invalid label "),
        ];
        for (change, expected) in cases {
            let failure = Dockerfile::new("catalog", &args(change)).unwrap_err();
            assert_eq!(failure.exit_code(), 2);
            assert!(failure.to_string().starts_with(expected), "{failure}");
        }
    }
}
