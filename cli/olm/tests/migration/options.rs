//! Options of `olm migrate apply` and `rollback`.

use std::path::Path;

use crate::fixture::Fixture;
use crate::succeeds;

#[tokio::test(flavor = "multi_thread")]
async fn all_packages_return_with_backups_from_files() {
    let fixture = Fixture::start(2).await;
    let names = [Fixture::name(0), Fixture::name(1)];
    let before = [fixture.objects(&names[0]).await, fixture.objects(&names[1]).await];
    let folder = fixture.file("backups");
    succeeds(&fixture, &["apply", &names[0], "--yes", "--keep-pinned", "--backup", &folder]).await;
    let extension = fixture.extension(&names[0]).await;
    let catalog = extension.spec.unwrap().source.catalog.unwrap();
    assert_eq!((catalog.version.as_deref(), catalog.channels.len()), (Some("1.0.0"), 0));
    succeeds(&fixture, &["apply", &names[1], "--yes"]).await;
    fixture.lose_backup(&names[0]).await;
    let ran = fixture.olm(&["rollback", &names[0], "--yes"]).await;
    assert_eq!(ran.code, 4, "{}", ran.stderr);
    let file = Path::new(&folder).join(format!("olm-migrate-{0}.{0}.json", names[0]));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    fixture.create_all(&file).await;
    let ran = fixture.olm(&["rollback", "--all", "--yes"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(ran.stdout.matches("1 pod compared, none restarted").count(), 2, "{}", ran.stdout);
    for (name, before) in names.iter().zip(&before) {
        fixture.is_classic(name, before).await;
    }
}
