package placement

import "sync"

// mailbox hands items to one goroutine. The poster never waits, and wakes the
// receiver only when the box was empty.
type mailbox[T any] struct {
	mu     sync.Mutex
	items  []T
	spare  []T
	closed bool
	wake   chan struct{} // capacity 1
}

func newMailbox[T any]() mailbox[T] { return mailbox[T]{wake: make(chan struct{}, 1)} }

// post adds items; it returns false, having added none, when the box is
// closed.
func (m *mailbox[T]) post(items ...T) bool {
	if len(items) == 0 {
		return true
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return false
	}
	was := len(m.items)
	m.items = append(m.items, items...)
	m.mu.Unlock()
	if was == 0 {
		signal(m.wake)
	}
	return true
}

// take returns what has been posted. The slice is valid until give.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items, m.spare = m.spare[:0], nil
	return items
}

// give returns a slice got from take for reuse.
func (m *mailbox[T]) give(items []T) {
	const keep = 1 << 14
	clear(items)
	if cap(items) > keep {
		return
	}
	m.mu.Lock()
	m.spare = items[:0]
	m.mu.Unlock()
}

// close refuses what comes from now on. What is in the box can still be taken.
func (m *mailbox[T]) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	signal(m.wake)
}

func (m *mailbox[T]) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
