//! The catalogd binary.

use std::process::ExitCode;

use catalogd::flags::{Command, Flags, GATES};
use catalogd::serve::serve;
use clap::CommandFactory;
use olm_service::command_line::{from_command_line, refuse};
use olm_service::component::version_text;
use olm_service::gates::FeatureGates;
use olm_service::{Component, run};

fn main() -> ExitCode {
    let flags: Flags = match from_command_line(&GATES) {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    match flags.command {
        Some(Command::Version) => {
            println!("{:?}", version_text());
            return ExitCode::SUCCESS;
        }
        Some(Command::Completion { shell }) => {
            let name = Component::Catalogd.name();
            clap_complete::generate(shell, &mut Flags::command(), name, &mut std::io::stdout());
            return ExitCode::SUCCESS;
        }
        None => {}
    }
    let gates = FeatureGates::parse(&GATES, &flags.service.feature_gates);
    match gates.and_then(|gates| flags.check().map(|()| gates)) {
        Ok(gates) => run(Component::Catalogd, flags.service.clone(), gates, |service| serve(service, flags)),
        Err(error) => refuse::<Flags>(&error),
    }
}
