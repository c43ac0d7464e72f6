package broker

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
)

// nameLocks are read-write locks by name, for changes of metadata: a change
// locks the names it depends on for reading and those it changes for writing,
// so that changes of different objects share commits instead of queueing for
// them. Locks exist only while somebody wants them.
type nameLocks struct {
	mu sync.Mutex
	m  map[string]*nameLock
}

type nameLock struct {
	sync.RWMutex
	refs int
}

// claim is one lock wanted.
type claim struct {
	key   string
	write bool
}

// lock takes all claims, in one order for everybody, and returns what gives
// them back. The same key may occur twice; writing wins.
func (l *nameLocks) lock(claims ...claim) (unlock func()) {
	slices.SortFunc(claims, func(a, b claim) int {
		if a.key == b.key && a.write != b.write {
			if a.write {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.key, b.key)
	})
	claims = slices.CompactFunc(claims, func(a, b claim) bool { return a.key == b.key })
	held := make([]*nameLock, len(claims))
	l.mu.Lock()
	if l.m == nil {
		l.m = make(map[string]*nameLock)
	}
	for i, c := range claims {
		n := l.m[c.key]
		if n == nil {
			n = &nameLock{}
			l.m[c.key] = n
		}
		n.refs++
		held[i] = n
	}
	l.mu.Unlock()
	for i, c := range claims {
		if c.write {
			held[i].Lock()
		} else {
			held[i].RLock()
		}
	}
	return func() { l.unlock(claims, held) }
}

func (l *nameLocks) unlock(claims []claim, held []*nameLock) {
	for i, c := range claims {
		if c.write {
			held[i].Unlock()
		} else {
			held[i].RUnlock()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, c := range claims {
		if held[i].refs--; held[i].refs == 0 {
			delete(l.m, c.key)
		}
	}
}

// The keys of locks. Tenants have locks of their own.

func exchangeKey(name string) string { return "x" + name }

func topicLockKey(filter bool, name string) string {
	if filter {
		return "f" + name
	}
	return "t" + name
}

func bindingKey(b *kernel.Binding) string {
	kind := "b"
	if b.ToExchange {
		kind = "e"
	}
	return strings.Join([]string{kind + b.Exchange, b.Queue, b.Key}, "\x00")
}
