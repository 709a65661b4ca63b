"""An agent beside a kubelet that ended between two steps: the next one completes what was begun."""

from support.node_lab import in_lab


@in_lab()
async def test_a_runtime_whose_record_was_not_changed_before_the_agent_ended_is_told(lab):
    """Else the next update by a kubelet, of CPU shares say, brings the old CPUs back."""

    shared, own = lab.run("shared", "500m"), lab.run("own", "1")
    lab.node.refusals["UpdateContainerResources"] = "UNAVAILABLE"
    async with lab.working():
        await lab.until_cpus(own, "1")
        await lab.until_cpus(shared, "0,2-7")
    assert (lab.node.record(own), lab.node.record(shared)) == ({}, {})
    lab.node.refusals.clear()
    async with lab.working():
        await lab.until(lambda: lab.node.record(shared).get("cpus") == "0,2-7")
        await lab.until(lambda: lab.node.record(own) == {"cpus": "1"})
        await lab.until_cpus(own, "1")
    changes = len(lab.node.updates)
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 2})
        assert len(lab.node.updates) == changes, "a record that agrees is not written again"
