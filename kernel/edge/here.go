package edge

// Here reports whether there is a host and all connections of the edge are linked to it,
// with what they have declared that lives in memory only. The host's facade holds publishes
// until all edges say so (broker.Broker.Gather).
func (e *Edge) Here() bool {
	host, _ := e.current()
	return host != nil && e.muster.complete()
}

// Empty reports whether the edge has no connections.
func (e *Edge) Empty() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.conns.Len() == 0
}

// complete reports whether nobody is away.
func (m *muster) complete() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.away == 0
}
