//! Go-style parsing of a command line with clap, and the error texts of Go's flag library
//! (docs/design/operations.md#flag-syntax, docs/design/operations.md#start-up-errors).

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};
use olm_runtime::component::{Component, version_text};
use olm_runtime::gates::{Gate, Stage};

/// Subcommands of a server.
#[derive(clap::Subcommand, Clone, Copy, Debug)]
pub enum ServerCommand {
    /// Print the version
    Version,
    /// Print the shell completion script
    Completion {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
}

impl ServerCommand {
    /// Runs the command. `P` are the flags of the server.
    pub fn run<P: CommandFactory>(self, server: Component) -> ExitCode {
        match self {
            // Quoted, as in the reference's catalogd.
            Self::Version if server == Component::Catalogd => println!("{:?}", version_text()),
            Self::Version => println!("{}", version_text()),
            Self::Completion { shell } => {
                clap_complete::generate(shell, &mut P::command(), server.name(), &mut std::io::stdout());
            }
        }
        ExitCode::SUCCESS
    }
}

/// Parses the command line of the process. Prints help, which lists the alpha and beta `gates`, and errors as in
/// docs/design/operations.md#flag-syntax.
///
/// # Errors
/// The exit code, if the server must not start.
pub fn from_command_line<P: CommandFactory + FromArgMatches>(gates: &[Gate]) -> Result<P, ExitCode> {
    let arguments: Vec<String> =
        std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    parse_with(with_gates(P::command(), gates), &arguments).map_err(|error| {
        if error.kind() == ErrorKind::DisplayHelp {
            print!("{error}");
            return ExitCode::SUCCESS;
        }
        refuse::<P>(&go_wording(&error, P::command().get_name(), &arguments))
    })
}

/// Prints an error of the command line to stderr, and returns the exit code.
pub fn refuse<P: CommandFactory>(error: &str) -> ExitCode {
    eprintln!("Error: {error}\n{}\n\nError: {error}", P::command().render_usage());
    ExitCode::FAILURE
}

/// Adds the gates to the help of `--feature-gates`. GA gates can be set but are not listed.
fn with_gates(command: Command, gates: &[Gate]) -> Command {
    let unsettled = gates.iter().filter(|gate| gate.stage != Stage::Ga);
    let line = |Gate { name, default, stage }: &Gate| {
        let stage = format!("{stage:?}").to_uppercase();
        format!("\n  {name}=true|false ({stage} - default={default})")
    };
    let lines: String = unsettled.map(line).collect();
    command.mut_arg("feature_gates", |argument| {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        argument.help(format!("{help}{lines}"))
    })
}

/// Parses the arguments after the program name like Go's flag library.
///
/// # Errors
/// The error text of docs/design/operations.md#start-up-errors, without its `Error: ` prefix, or the help text.
pub fn parse<P: CommandFactory + FromArgMatches>(arguments: &[String]) -> Result<P, String> {
    let command = P::command();
    let name = command.get_name().to_owned();
    parse_with(command, arguments).map_err(|error| go_wording(&error, &name, arguments))
}

fn parse_with<P: FromArgMatches>(command: Command, arguments: &[String]) -> Result<P, clap::Error> {
    let command = command.args_override_self(true).disable_version_flag(true).no_binary_name(true);
    P::from_arg_matches(&command.try_get_matches_from(arguments)?)
}

/// Converts a clap error to the text of Go's flag library.
fn go_wording(error: &clap::Error, command: &str, arguments: &[String]) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" "),
        _ => String::new(),
    };
    let argument = text(ContextKind::InvalidArg);
    let value = text(ContextKind::InvalidValue);
    let flag = argument.split([' ', '=', '[']).next().unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument if argument.starts_with("--") => format!("unknown flag: {flag}"),
        ErrorKind::UnknownArgument if argument.len() > 1 && argument.starts_with('-') => {
            let letter = argument.chars().nth(1).unwrap_or('-');
            let whole = arguments
                .iter()
                .find(|given| given.starts_with('-') && !given.starts_with("--") && given.contains(letter))
                .map_or(argument.as_str(), String::as_str);
            format!("unknown shorthand flag: {letter:?} in {whole}")
        }
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            let subcommand = text(ContextKind::InvalidSubcommand);
            let word = if subcommand.is_empty() { argument } else { subcommand };
            format!("unknown command {word:?} for {command:?}")
        }
        ErrorKind::InvalidValue if value.is_empty() => format!("flag needs an argument: {flag}"),
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            format!("invalid argument {value:?} for {flag:?} flag: {why}")
        }
        ErrorKind::InvalidValue => {
            let allowed = text(ContextKind::ValidValue);
            format!("invalid argument {value:?} for {flag:?} flag: want one of {allowed}")
        }
        _ => error.to_string().trim_start_matches("error: ").trim().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::flags::fixture::{Flags, flags};
    use crate::flags::heading;

    #[test]
    fn go_flag_syntax_is_accepted() {
        let got = flags(&[
            "--leader-elect",
            "--metrics-bind-address=:7443",
            "--feature-gates=A=true",
            "--feature-gates=B=false,C=true",
            "--tls-cert",
            "/x",
            "--tls-key=/y",
            "-v=2",
            "--leader-elect-retry-period=1m0s",
            "--tls-key=/z",
            "--tls-profile=Modern",
        ])
        .unwrap();
        assert!(got.leader_elect);
        assert_eq!(got.feature_gates, ["A=true", "B=false,C=true"]);
        assert_eq!((got.tls_cert.as_str(), got.tls_key.as_str()), ("/x", "/z"));
        assert_eq!(got.verbosity, 2);
        assert_eq!(got.leader_elect_retry_period, Duration::from_secs(60));
        for v in [["-v2"].as_slice(), &["-v", "2"], &["--v=2"], &["--v", "2"]] {
            assert_eq!(flags(v).unwrap().verbosity, 2, "{v:?}");
        }
        assert!(!flags(&["--leader-elect", "--leader-elect=false"]).unwrap().leader_elect);
        assert_eq!(
            flags(&["--logtostderr=true", "--log_dir=/x", "--vmodule=a=2"]).unwrap().without_effect(),
            ["vmodule", "log_dir"]
        );
    }

    #[test]
    fn help_is_grouped_and_lists_gates() {
        let gates = [
            Gate { name: "New", default: false, stage: Stage::Alpha },
            Gate { name: "Settled", default: true, stage: Stage::Ga },
        ];
        let command = with_gates(Flags::command(), &gates);
        let help = parse_with::<Flags>(command, &["--help".to_owned()]).unwrap_err().to_string();
        for heading in [
            heading::CLUSTER,
            heading::ELECTION,
            heading::LOGS,
            heading::METRICS,
            heading::REGISTRIES,
            heading::TLS,
        ] {
            assert!(help.contains(&format!("\n{heading}:\n")), "{heading} in {help}");
        }
        assert!(help.contains("New=true|false (ALPHA - default=false)"), "{help}");
        assert!(!help.contains("Settled") && !help.contains("vmodule"), "{help}");
        // The default heading contains --help only.
        let options = help.split_once("\nOptions:\n").unwrap().1;
        let options = options.split("\n\n").next().unwrap();
        assert!(options.contains("-h, --help") && options.matches("--").count() == 1, "{options}");
    }

    #[test]
    fn invalid_flags_return_go_error_texts() {
        let rows: [(&[&str], &str); 12] = [
            (&["--foo"], "unknown flag: --foo"),
            (&["--foo=1"], "unknown flag: --foo"),
            (&["-leader-elect"], "unknown shorthand flag: 'l' in -leader-elect"),
            (&["foo"], "unknown command \"foo\" for \"catalogd\""),
            (
                &["--tls-profile=foo"],
                "invalid argument \"foo\" for \"--tls-profile\" flag: unknown TLS profile: \"foo\"",
            ),
            (
                &["--tls-custom-ciphers=A"],
                "invalid argument \"A\" for \"--tls-custom-ciphers\" flag: unknown cipher \"A\"",
            ),
            (
                &["--tls-custom-curves=zzz"],
                "invalid argument \"zzz\" for \"--tls-custom-curves\" flag: unknown curve \"zzz\"",
            ),
            (
                &["--tls-custom-version=1.2"],
                "invalid argument \"1.2\" for \"--tls-custom-version\" flag: unknown TLS version: \"1.2\"",
            ),
            (&["--tls-cert"], "flag needs an argument: --tls-cert"),
            (
                &["--shutdown-grace=5"],
                "invalid argument \"5\" for \"--shutdown-grace\" flag: time: invalid duration \"5\"",
            ),
            (
                &["--leader-elect=maybe"],
                "invalid argument \"maybe\" for \"--leader-elect\" flag: strconv.ParseBool: parsing \"maybe\": invalid syntax",
            ),
            (
                &["--log-format=xml"],
                "invalid argument \"xml\" for \"--log-format\" flag: want one of klog json",
            ),
        ];
        for (arguments, expect) in rows {
            assert_eq!(flags(arguments).err().as_deref(), Some(expect), "{arguments:?}");
        }
    }
}
