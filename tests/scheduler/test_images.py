"""Images of nodes by name, against looking at every node."""

from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.kube.objects import ContainerImage
from corelane.scheduler.cluster.objects import ImageIndex

_IMAGES = st.lists(
    st.builds(
        ContainerImage,
        st.lists(st.sampled_from("abcd"), max_size=3, unique=True).map(tuple),
        st.integers(1, 9),
    ),
    max_size=3,
    unique_by=lambda image: image.names,
).map(tuple)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 90), _IMAGES), max_size=40), st.integers(0, 90), _IMAGES)
def test_sizes_and_numbers_are_those_of_the_nodes(changes: list, spread: int, common: tuple) -> None:
    index, expected = ImageIndex(), {}
    for row, images in [*((row, common) for row in range(spread)), *changes]:
        index.put(row, images)
        expected[row] = images
    for name in "abcd":
        sizes = {
            row: sum(image.size_bytes for image in images if name in image.names)
            for row, images in expected.items()
        }
        found = index.sizes(name, 128)
        assert {row: found[row] for row in sizes} == sizes
        lists = [image for images in expected.values() for image in images if name in image.names]
        assert index.nodes(name) == len(lists)
        assert (name in index.by_name) == bool(lists)
