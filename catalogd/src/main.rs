//! The catalogd binary.

use std::process::ExitCode;

use catalogd::flags::{Command, Flags, GATES};
use catalogd::serve::serve;
use olm_service::component::version_text;
use olm_service::gates::FeatureGates;
use olm_service::{Component, flags::from_command_line, run};

fn main() -> ExitCode {
    let flags: Flags = match from_command_line() {
        Ok(flags) => flags,
        Err(code) => return code,
    };
    if let Some(Command::Version) = flags.command {
        println!("{:?}", version_text());
        return ExitCode::SUCCESS;
    }
    let gates = FeatureGates::parse(&GATES, &flags.service.feature_gates);
    let gates = gates.and_then(|gates| flags.check().map(|()| gates));
    match gates {
        Ok(gates) => run(Component::Catalogd, flags.service.clone(), gates, |service| serve(service, flags)),
        Err(error) => {
            eprintln!("Error: {error}");
            ExitCode::FAILURE
        }
    }
}
