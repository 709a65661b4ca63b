"""Koordinator's accumulator, plainly: lists of CPU ids, and sorts."""

from collections import Counter, defaultdict


def take(rows, available, n, bind, exclusive, most, references, held, preferred=()):
    """As `koordinator.take`, with sets; `references` and `held` map CPUs to counts and to policies."""
    available = set(available) & {row[0] for row in rows}
    if n < 1:
        return set()
    if n > len(available):
        raise ValueError("not enough cpus available to satisfy request")
    first, taken = available & set(preferred), set()
    for cpus in (first, available - first):
        need = min(n - len(taken), len(cpus))
        if need > 0:
            taken |= set(_Model(rows, cpus, need, bind, exclusive, most, references, held).run())
    return taken


class _Model:
    def __init__(self, rows, free, need, bind, exclusive, most, references, held):
        self.place = {cpu: (socket << 16 | core, socket, node) for cpu, core, socket, node, _ in rows}
        cores, sockets, nodes = (len({p[i] for p in self.place.values()}) for i in range(3))
        self.threads = len(rows) // cores
        self.per_socket, self.per_node = len(rows) // sockets, len(rows) // nodes
        self.free, self.need, self.bind, self.exclusive = set(free), need, bind, exclusive
        self.sign = 1 if most else -1
        self.references = references or {}
        self.shut_cores = {self.core(cpu) for cpu, policy in held.items() if policy == "PCPULevel"}
        self.shut_nodes = {self.node(cpu) for cpu, policy in held.items() if policy == "NUMANodeLevel"}
        self.taken = []

    def core(self, cpu):
        return self.place[cpu][0]

    def socket(self, cpu):
        return self.place[cpu][1]

    def node(self, cpu):
        return self.place[cpu][2]

    def references_of(self, cpu):
        return self.references.get(cpu, 0)

    def is_shut(self, cpu, cores=True, nodes=True):
        if cores and self.exclusive == "PCPULevel" and self.core(cpu) in self.shut_cores:
            return True
        return nodes and self.exclusive == "NUMANodeLevel" and self.node(cpu) in self.shut_nodes

    def claim(self, cpus):
        for cpu in cpus:
            self.taken.append(cpu)
            self.free.discard(cpu)
            self.shut_cores.add(self.core(cpu))
            self.shut_nodes.add(self.node(cpu))
        self.need -= len(cpus)

    def run(self):
        if self.bind == "FullPCPUs" or self.threads == 1:
            self.full_cores()
        else:
            self.spread()
        for filtered in (True, False):
            if self.need > 0:
                self.single(filtered)
        return self.taken

    def by_core(self, cpus):
        cores = defaultdict(list)
        for cpu in sorted(cpus, key=lambda cpu: (self.references_of(cpu), cpu)):
            cores[self.core(cpu)].append(cpu)
        return cores

    def whole(self, cpus):
        """The CPUs of full cores, core after core."""
        cores = {core: sorted(some) for core, some in self.by_core(cpus).items() if len(some) == self.threads}
        order = sorted(cores, key=lambda core: (sum(map(self.references_of, cores[core])), core))
        return [cpu for core in order for cpu in cores[core]]

    def in_turn(self, cpus):
        if len(cpus) <= self.threads:
            return cpus
        left, turns = list(cpus), []
        while left:
            seen, later = set(), []
            for cpu in left:
                (later if self.core(cpu) in seen else turns).append(cpu)
                seen.add(self.core(cpu))
            left = later
        return turns

    def nodes(self, free, offered):
        """What each NUMA node offers, first choice first; `offered` returns (CPUs that count, CPUs)."""
        around, ranked = Counter(map(self.socket, free)), []
        for node in sorted(set(map(self.node, free))):
            inside = sorted(cpu for cpu in free if self.node(cpu) == node)
            socket = min(self.socket(cpu) for cpu in self.place if self.node(cpu) == node)
            counted, cpus = offered(inside)
            ranked.append((len(counted) * self.sign, around[socket] * self.sign, node, cpus))
        return [cpus for *_, cpus in sorted(ranked)]

    def sockets(self, free, offered):
        inside = [(s, offered([c for c in sorted(free) if self.socket(c) == s])) for s in self.all_sockets()]
        return [cpus for _, cpus in sorted(inside, key=lambda one: (len(one[1]) * self.sign, one[0]))]

    def all_sockets(self):
        return sorted({place[1] for place in self.place.values()})

    def full_cores(self):
        if self.need <= self.per_node:
            for filtered in (True, False):
                free = {cpu for cpu in self.free if not (filtered and self.is_shut(cpu, cores=False))}
                for cpus in self.nodes(free, lambda inside: (self.whole(inside),) * 2):
                    if len(cpus) >= self.need:
                        return self.claim(cpus[: self.need])
        lists = self.sockets(self.free, self.whole)
        if self.need <= self.per_socket:
            for cpus in lists:
                if len(cpus) >= self.need:
                    return self.claim(cpus[: self.need])
        left = []
        for cpus in sorted(lists, key=lambda cpus: -len(cpus)):
            if self.need >= len(cpus):
                self.claim(cpus)
            else:
                left.append(cpus)
        if self.need >= self.threads:
            for cpus in sorted(left, key=len):
                for i in range(0, len(cpus), self.threads):
                    if self.need > 0 and (i == 0 or self.need >= self.threads):
                        self.claim(cpus[i : i + self.threads])
        return None

    def spread(self):
        for limit, by_node in ((self.per_node, True), (self.per_socket, False)):
            if self.need > limit:
                continue
            for filtered in (True, False):
                free = {cpu for cpu in self.free if not (filtered and self.is_shut(cpu, nodes=by_node))}

                def one_a_core(inside, filtered=filtered):
                    firsts = [cpus[0] for cpus in self.by_core(inside).values()]
                    cpus = firsts if filtered else inside
                    return sorted(cpus, key=lambda one: (self.references_of(one), one))

                lists = (
                    self.nodes(free, lambda inside: (inside, one_a_core(inside)))
                    if by_node
                    else self.sockets(free, one_a_core)
                )
                for cpus in lists:
                    if len(cpus) >= self.need:
                        return self.claim(self.in_turn(cpus)[: self.need])
        return None

    def single(self, filtered):
        free = {cpu for cpu in self.free if not (filtered and self.is_shut(cpu))}
        on_socket, on_node = Counter(map(self.socket, free)), Counter(map(self.node, free))
        taken, cores = Counter(map(self.socket, self.taken)), self.by_core(free)

        def rank(core):
            cpu = cores[core][0]
            return (
                -taken[self.socket(cpu)],
                on_socket[self.socket(cpu)] * self.sign,
                on_node[self.node(cpu)] * self.sign,
                len(cores[core]),
                self.socket(cpu),
                sum(map(self.references_of, cores[core])),
                core,
            )

        ordered = [cpu for core in sorted(cores, key=rank) for cpu in cores[core]]
        self.claim(self.in_turn(ordered)[: self.need])
