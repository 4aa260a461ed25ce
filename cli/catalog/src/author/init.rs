//! `olm catalog init`: prints or writes the initial `olm.package` object of a package
//! (docs/design/cli.md#opm-compatibility).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_fbc::SCHEMA_PACKAGE;
use serde_json::{Value, json};

use super::CatalogFormat;
use super::catalog_dir::{CatalogDir, failed, require_package_name, write_whole};
use super::catalog_text::object_text;

/// Largest description and icon file. Both are part of every response about the package.
const MAX_FILE: u64 = 1 << 20;

/// Help text of `olm catalog init`.
pub(crate) const ABOUT: &str = "Create the olm.package object of a package

Prints the object, or creates the package in a catalog directory (--to). Add bundles with `catalog add`.";

/// Arguments of `olm catalog init`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  {olm} catalog init my-operator --default-channel stable --description README.md --icon logo.svg --to ./catalog
  {olm} catalog init my-operator -c stable -o yaml > catalog/my-operator/index.yaml")]
pub struct InitArgs {
    /// Name of the package: lower-case letters, digits and `-`
    package: String,
    /// Channel for installations that specify no channel
    #[arg(short = 'c', long, value_name = "CHANNEL", default_value = "", hide_default_value = true)]
    default_channel: String,
    /// File that describes the operator, such as its README.md
    #[arg(short, long, value_name = "FILE")]
    description: Option<PathBuf>,
    /// Image of the operator: SVG, PNG, JPEG, GIF or WebP
    #[arg(short, long, value_name = "FILE")]
    icon: Option<PathBuf>,
    /// Format of the object; default: json, with --to yaml
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<CatalogFormat>,
    /// Create the package in this catalog directory, in a file PACKAGE/index.yaml that must not exist yet
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// The package name is invalid, a file cannot be read or is invalid, or the package exists.
pub(crate) async fn run(args: InitArgs, session: &mut Session) -> Result<(), CliError> {
    let object = package_object(&args)?;
    let default = if args.to.is_some() { CatalogFormat::Yaml } else { CatalogFormat::Json };
    let notation = args.output.unwrap_or(default);
    let text = object_text(&object, notation.form())?;
    let Some(root) = &args.to else {
        return session.output.text(&text);
    };
    let name = match notation {
        CatalogFormat::Json => "index.json",
        CatalogFormat::Yaml => "index.yaml",
    };
    let file = Path::new(&args.package).join(name);
    let path = root.join(&file);
    if root.is_dir() {
        let catalog = CatalogDir::open(root, session)?;
        if let Some(known) = catalog.file(SCHEMA_PACKAGE, &args.package, &args.package) {
            let (package, file) = (&args.package, catalog.path(known));
            return Err(CliError::operational(format!("package {package} is already in {}", file.display())));
        }
    }
    if path.symlink_metadata().is_ok() {
        return Err(CliError::operational(format!("{} exists already; it was not changed", path.display())));
    }
    write_whole(&path, &text)?;
    session.output.text(&format!("{}\n", path.display()))
}

fn package_object(args: &InitArgs) -> Result<Value, CliError> {
    require_package_name(&args.package)?;
    let mut object = json!({
        "schema": SCHEMA_PACKAGE,
        "name": args.package,
        "defaultChannel": args.default_channel,
    });
    if let Some(path) = &args.icon {
        let data = read(path)?;
        let Some(media_type) = media_type(&data) else {
            let expected = "expected an image: SVG, PNG, JPEG, GIF or WebP";
            return Err(CliError::operational(format!("icon {}: {expected}", path.display())));
        };
        object["icon"] = json!({ "base64data": BASE64_STANDARD.encode(data), "mediatype": media_type });
    }
    if let Some(path) = &args.description {
        let text = String::from_utf8(read(path)?)
            .map_err(|_| CliError::operational(format!("description {}: not UTF-8 text", path.display())))?;
        if !text.is_empty() {
            object["description"] = json!(text);
        }
    }
    Ok(object)
}

fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let wrong = |error: std::io::Error| failed("read", path, &error);
    let mut content = Vec::new();
    File::open(path).map_err(wrong)?.take(MAX_FILE + 1).read_to_end(&mut content).map_err(wrong)?;
    if content.len() as u64 > MAX_FILE {
        return Err(CliError::operational(format!("{} is larger than {MAX_FILE} bytes", path.display())));
    }
    Ok(content)
}

/// Media type of an image, detected from its first bytes.
fn media_type(data: &[u8]) -> Option<&'static str> {
    let begins = |magic: &[u8]| data.starts_with(magic);
    match data {
        _ if begins(b"\x89PNG\r\n\x1a\n") => Some("image/png"),
        _ if begins(b"\xff\xd8\xff") => Some("image/jpeg"),
        _ if begins(b"GIF87a") || begins(b"GIF89a") => Some("image/gif"),
        _ if begins(b"RIFF") && data.get(8..12) == Some(b"WEBP") => Some("image/webp"),
        _ => {
            let text = std::str::from_utf8(data).ok()?.trim_start_matches('\u{feff}').trim_start();
            // Declarations and comments may precede the root element.
            (text.starts_with('<') && text.contains("<svg")).then_some("image/svg+xml")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_is_detected_from_first_bytes() {
        for (data, expected) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a..", Some("image/gif")),
            (b"RIFF....WEBPVP8 ", Some("image/webp")),
            (b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>", Some("image/svg+xml")),
            (b"<?xml version=\"1.0\"?>\n<!-- logo -->\n<svg/>", Some("image/svg+xml")),
            (b"<html></html>", None),
            (b"plain", None),
            (b"", None),
        ] {
            assert_eq!(media_type(data), expected, "{}", String::from_utf8_lossy(data));
        }
    }
}
