"""Annotations of pods with a meaning: what they may say, and that they say what the fields do."""

import json

import pytest

from support.pod_faults import agree, container, faults, merged, prepared, spec

APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
LOCAL = {"type": "Localhost", "localhostProfile": "p"}


def annotated(**annotations):
    return {"metadata": {"annotations": annotations}}


def profiled(name, profile):
    return container(securityContext={name: profile})


REFUSED = [
    (
        annotated(**{f"{APP_ARMOR}x": "unconfined"}),
        f'metadata.annotations[{APP_ARMOR}x]: Invalid value: "x": container not found',
    ),
    (
        annotated(**{f"{APP_ARMOR}c": "odd"}),
        f'metadata.annotations[{APP_ARMOR}c]: Invalid value: "odd": invalid AppArmor profile name: "odd"',
    ),
    (
        annotated(**{SECCOMP: "odd"}),
        f'metadata.annotations.{SECCOMP}: Invalid value: "odd": must be a valid seccomp profile',
    ),
    (
        annotated(**{f"{SECCOMP_CONTAINER}c": "localhost//a"}),
        f'metadata.annotations.{SECCOMP_CONTAINER}c: Invalid value: "/a": must be a relative path',
    ),
    (
        merged(annotated(**{SECCOMP: "unconfined"}), spec(securityContext={"seccompProfile": LOCAL})),
        "spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation…",
    ),
    (
        merged(annotated(**{f"{SECCOMP_CONTAINER}c": "localhost/q"}), profiled("seccompProfile", LOCAL)),
        (
            "spec.containers[0].securityContext.seccompProfile.localhostProfile: Forbidden: "
            "seccomp profile in annotation and field must match"
        ),
    ),
    (
        merged(annotated(**{f"{APP_ARMOR}c": "localhost/q"}), profiled("appArmorProfile", LOCAL)),
        (
            "spec.containers[0].securityContext.appArmorProfile.localhostProfile: Forbidden: "
            "apparmor profile in annotation and field must match"
        ),
    ),
    (
        merged(
            annotated(**{f"{APP_ARMOR}c": "unconfined"}),
            profiled("appArmorProfile", {"type": "RuntimeDefault"}),
        ),
        (
            "spec.containers[0].securityContext.appArmorProfile.type: Forbidden: "
            "apparmor type in annotation and field must match"
        ),
    ),
    (
        annotated(**{TOLERATIONS: "{"}),
        "metadata.annotations: Invalid value: …",
    ),
    (
        annotated(**{TOLERATIONS: json.dumps([{"key": "a", "effect": "Kill"}])}),
        f'metadata.annotations.{TOLERATIONS}[0].effect: Unsupported value: "Kill": …',
    ),
    (annotated(**{TOLERATIONS: "{}"}), "metadata.annotations: Invalid value: …"),
]
SOUND = [
    annotated(**{f"{APP_ARMOR}c": "", SECCOMP: "docker/default"}),
    merged(annotated(**{SECCOMP: "localhost/p"}), spec(securityContext={"seccompProfile": LOCAL})),
    merged(annotated(**{f"{APP_ARMOR}c": "localhost/p"}), profiled("appArmorProfile", LOCAL)),
    annotated(**{TOLERATIONS: json.dumps([{"key": "a", "operator": "Exists"}])}),
    annotated(**{"controller.kubernetes.io/pod-deletion-cost": "-2147483648"}),
]


@pytest.mark.parametrize(("change", "expected"), [(change, expected) for change, *expected in REFUSED])
def test_an_annotation_is_refused_in_upstreams_words(change, expected):
    assert agree(faults(change), expected)


@pytest.mark.parametrize("change", SOUND)
def test_a_sound_annotation_is_accepted(change):
    assert faults(change) == []


@pytest.mark.parametrize(
    ("annotation", "profile"),
    [
        ("unconfined", {"type": "Unconfined"}),
        ("runtime/default", {"type": "RuntimeDefault"}),
        ("localhost/p", LOCAL),
        ("localhost/", None),
        ("odd", None),
    ],
)
def test_a_profile_in_an_annotation_becomes_a_field(annotation, profile):
    pod = prepared(annotated(**{f"{APP_ARMOR}c": annotation}))
    assert pod["spec"]["containers"][0].get("securityContext", {}).get("appArmorProfile") == profile


def test_a_profile_that_is_the_whole_pods_or_said_already_is_not_copied():
    said = annotated(**{f"{APP_ARMOR}c": "unconfined"})
    whole = prepared(merged(said, spec(securityContext={"appArmorProfile": {"type": "Unconfined"}})))
    assert "securityContext" not in whole["spec"]["containers"][0]
    own = prepared(merged(said, profiled("appArmorProfile", LOCAL)))
    assert own["spec"]["containers"][0]["securityContext"]["appArmorProfile"] == LOCAL
    windows = prepared(merged(said, spec(os={"name": "windows"})))
    assert "securityContext" not in windows["spec"]["containers"][0]
