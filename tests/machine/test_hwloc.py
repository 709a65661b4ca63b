from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.cpuset import CPUSet
from corelane.machine import MachineError
from corelane.machine.hwloc import parse_hwloc

V2 = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x000000ff" complete_cpuset="0x000003ff" gp_index="1">
    <info name="HostName" value="box"/>
    <object type="Package" os_index="0" cpuset="0x0000000f">
      <object type="NUMANode" os_index="0" cpuset="0x0000000f" local_memory="1073741824">
        <page_type size="4096" count="1"/><page_type size="2097152" count="5"/>
      </object>
      <object type="NUMANode" os_index="2" cpuset="0x0000000f" local_memory="2147483648"/>
      <object type="L3Cache" os_index="0" cpuset="0x00000005">
        <object type="Core" os_index="0" cpuset="0x00000005">
          <object type="PU" os_index="0" cpuset="0x00000001"/>
          <object type="PU" os_index="2" cpuset="0x00000004"/>
        </object>
      </object>
      <object type="L3Cache" os_index="1" cpuset="0x0000000a">
        <object type="Core" os_index="0" cpuset="0x0000000a">
          <object type="PU" os_index="1" cpuset="0x00000002"/>
          <object type="PU" os_index="3" cpuset="0x00000008"/>
        </object>
      </object>
      <object type="Bridge" gp_index="9">
        <object type="PCIDev" pci_busid="0000:3b:00.0" pci_type="0200 [8086:1592] [8086:0002] 02"/>
        <object type="PCIDev" pci_busid="0000:00:00.0" pci_type="0600 [8086:2020] [0000:0000] 04"/>
      </object>
    </object>
    <object type="Package" os_index="1" cpuset="0x000000f0">
      <object type="NUMANode" os_index="1" cpuset="0x000000f0" local_memory="1073741824"/>
      <object type="Die" os_index="1" cpuset="0x000000f0">
        <object type="PU" os_index="4" cpuset="0x10"/><object type="PU" os_index="5" cpuset="0x20"/>
        <object type="PU" os_index="6" cpuset="0x40"/><object type="PU" os_index="7" cpuset="0x80"/>
      </object>
    </object>
  </object>
  <distances2 type="NUMANode" nbobjs="3" kind="5" indexing="os">
    <indexes length="6">0 1 2 </indexes>
    <u64values length="18">10 21 14 21 10 28 </u64values>
    <u64values length="9">14 28 10 </u64values>
  </distances2>
  <cpukind cpuset="0x0000000f"><info name="FrequencyMaxMHz" value="5000"/></cpukind>
  <cpukind cpuset="0x000000f0"><info name="FrequencyMaxMHz" value="3900"/></cpukind>
</topology>
"""

V1 = """<topology>
  <object type="Machine" os_index="0" cpuset="0xf...f,0x00000001,,0x0" local_memory="4096">
    <object type="Socket" os_index="3" cpuset="0x00000001,,0x00000001">
      <object type="Cache" depth="3" cpuset="0x00000001,,0x00000001">
        <object type="Core" os_index="0" cpuset="0x00000001,,0x00000001">
          <object type="PU" os_index="0" cpuset="0x1"/>
          <object type="PU" os_index="64" cpuset="0x1,,0x0"/>
        </object>
      </object>
    </object>
  </object>
</topology>
"""


def parse(text):
    return parse_hwloc(text, name="m", source="m.xml")


def test_version_2_gives_the_whole_machine():
    machine = parse(V2)
    assert machine.name == "box"
    assert machine.socket_masks == ((0, 0x0F), (1, 0xF0))
    assert machine.core_masks[:2] == ((0, 0b0101), (1, 0b1010)), "cores by object: their os_index repeats"
    assert [mask for core, mask in machine.core_masks[2:]] == [1 << cpu for cpu in range(4, 8)]
    assert machine.l3_masks == ((0, 0b0101), (1, 0b1010), (3, 0xF0)), "and one more for CPUs without an L3"
    assert machine.numa_masks == ((0, 0x0F), (1, 0xF0)), "of nodes in one place the first has the CPUs"
    assert [node.memory for node in machine.nodes] == [1 << 30, 1 << 30, 2 << 30]
    assert machine.node(0).hugepages == {2048: 5}
    assert machine.node(1).distances == {0: 21, 1: 10, 2: 28}
    assert [cpu.kind for cpu in machine.cpus] == list("PPPPEEEE")
    assert machine.cpu(4).die == 1
    assert machine.offline == CPUSet([8, 9])


def test_cpus_of_a_die_without_memory_belong_to_the_lowest_node_of_their_own_socket():
    def socket(index):
        first, second = 1 << 2 * index, 2 << 2 * index
        return f"""<object type="Package" os_index="{index}" cpuset="{first | second:#x}">
          <object type="NUMANode" os_index="{2 * index + 1}" cpuset="{second:#x}" local_memory="4096"/>
          <object type="PU" os_index="{2 * index}" cpuset="{first:#x}"/>
          <object type="PU" os_index="{2 * index + 1}" cpuset="{second:#x}"/></object>"""

    machine = parse(
        f'<topology><object type="Machine" cpuset="0xf">{socket(0)}{socket(1)}</object></topology>'
    )
    assert machine.numa_masks == ((1, 0b0011), (3, 0b1100))
    assert machine.notes == ("CPUs 0,2 are listed in no NUMA node: put into node 1,3",)


def test_devices_are_near_what_they_hang_on_and_bridges_left_out():
    (device,) = parse(V2).devices
    assert (device.address, device.kind, device.vendor) == ("0000:3b:00.0", "network", "0x8086")
    assert device.local_cpus == CPUSet(range(4))
    assert device.numa == 0


def test_version_1_words_and_sparse_masks_are_read():
    machine = parse(V1)
    assert machine.online == CPUSet([0, 64])
    assert machine.core_masks == ((0, 1 | 1 << 64),)
    assert machine.socket_masks == ((3, 1 | 1 << 64),)
    assert (machine.node(0).memory, machine.node(0).cpus) == (4096, CPUSet([0, 64]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<topology", "not valid XML"),
        ("<html/>", "<html> is not hwloc's <topology>"),
        ("<topology/>", "names no CPU"),
        (
            V2.replace('type="PU" os_index="4"', 'type="PU"'),
            "<object type='PU' gp_index=''> has no usable attribute",
        ),
        (V2.replace('"0x000000f0"', '"0xzz"'), "attribute cpuset of <object type='Package'"),
        (V2.replace('os_index="5"', 'os_index="4"'), "a CPU id appears twice"),
    ],
)
def test_broken_xml_names_element_and_attribute(text, message):
    with pytest.raises(MachineError) as caught:
        parse(text)
    assert message in str(caught.value)


def test_entity_bombs_are_refused():
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + "".join(
        f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9)
    )
    with pytest.raises(MachineError, match="not valid XML"):
        parse(f"{bomb}]><topology>&j;</topology>")


@settings(deadline=None)
@given(st.data())
def test_any_damage_gives_a_machine_or_an_error_of_ours(data):
    start = data.draw(st.integers(0, len(V2)))
    text = (
        V2[:start]
        + data.draw(st.text(alphabet='<>"= x0f/', max_size=8))
        + V2[start + data.draw(st.integers(0, 9)) :]
    )
    with suppress(MachineError):
        parse(text)
