from broker.app.address import Address
from broker.server.conf_sites import KEPT_HERE, SitesConf, render_sites


def test_without_other_sites_there_is_no_section() -> None:
    assert render_sites(SitesConf("here")) == []


def test_whoever_listens_names_the_account_only_while_there_are_no_credentials() -> None:
    listen = Address("127.0.0.1", 7422)

    opened = "\n".join(render_sites(SitesConf("here", listen, is_open=True)))
    closed = "\n".join(render_sites(SitesConf("here", listen)))

    assert 'listen: "127.0.0.1:7422"' in closed
    assert "authorization { account: LOGS }" in opened
    assert "authorization" not in closed


def test_subjects_of_ones_own_cross_to_no_site_and_come_from_none() -> None:
    text = "\n".join(
        render_sites(SitesConf("here", remotes=(Address("hub", 7422), Address("b", 1))))
    )

    for word in ("deny_imports", "deny_exports"):
        assert text.count(word) == 2
    for subject in KEPT_HERE:
        assert text.count(f'"{subject}"') == 4


def test_a_seed_is_shown_to_the_other_site_and_never_by_the_value() -> None:
    conf = SitesConf("here", remotes=(Address("hub", 7422),), seed="SUSECRET")

    assert 'nkey: "SUSECRET"' in "\n".join(render_sites(conf))
    assert "SUSECRET" not in repr(conf)
