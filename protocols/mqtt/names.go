package mqtt

// maxNames is how many topic names a connection remembers.
const maxNames = 256

// names remembers the topic names of a connection, so that a name seen before
// becomes a string without allocation. The zero value is ready.
type names struct{ seen map[string]string }

func (n *names) of(topic []byte) string {
	if s, ok := n.seen[string(topic)]; ok {
		return s
	}
	s := string(topic)
	if len(s) > 1024 {
		return s
	}
	if n.seen == nil || len(n.seen) >= maxNames {
		n.seen = make(map[string]string, 8)
	}
	n.seen[s] = s
	return s
}
