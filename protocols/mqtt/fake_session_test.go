package mqtt

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// publishWill publishes the will of a session, as the kernel does. mu is held.
func (n *fakeNode) publishWill(s *fakeSession) {
	if w := s.will; w != nil {
		n.published = append(n.published, published{topic: w.Topic, rec: w.Record})
	}
	s.will, s.left = nil, nil
}

type fakeSession struct {
	will     *kernel.Will // n.mu guards it
	left     *time.Timer
	numbers  map[uint16]bool // in use, for messages stored once
	pins     []sessionPin
	kept     []byte
	records  map[int64]kernel.Record // of all topics, for Read
	node     *fakeNode
	id       string
	expiry   time.Duration
	taken    func()
	detached chan struct{}

	mu    sync.Mutex
	subs  map[string]kernel.Subscription
	feeds map[string]*fakeMember
}

func (s *fakeSession) State() kernel.SessionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	subs := slices.Collect(maps.Values(s.subs))
	slices.SortFunc(subs, func(a, b kernel.Subscription) int {
		if a.Filter < b.Filter {
			return -1
		}
		return 1
	})
	return kernel.SessionState{ClientID: s.id, Expiry: s.expiry, Subscriptions: subs}
}

func (s *fakeSession) Epoch() uint64 { return 1 }

func (s *fakeSession) Suspend() {}

func (s *fakeSession) Subscribe(ctx context.Context, specs []broker.SubscribeSpec) []subscribed {
	out := make([]subscribed, len(specs))
	for i, spec := range specs {
		sub := spec.Subscription
		if out[i].Err = s.node.subErr; out[i].Err != nil {
			continue
		}
		s.mu.Lock()
		_, existed := s.subs[sub.Filter]
		s.subs[sub.Filter] = sub
		s.mu.Unlock()
		out[i].Existed = existed
		out[i].Member, out[i].Err = s.Attach(ctx, spec)
	}
	return out
}

func (s *fakeSession) Attach(_ context.Context, spec broker.SubscribeSpec) (member, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := spec.Subscription
	m := &fakeMember{session: s, feed: spec.To.(*feed), changed: make(chan struct{}, 1)}
	s.feeds[sub.Filter] = m
	if sub.QoS == 0 && !kernel.IsShare(sub.Filter) || s.expiry == 0 && !kernel.IsShare(sub.Filter) {
		return nil, nil
	}
	return m, nil
}

func (s *fakeSession) Unsubscribe(_ context.Context, filter string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.subs[filter]
	delete(s.subs, filter)
	return ok, nil
}

func (s *fakeSession) Release(numbers []uint16, done func([]uint16, error)) {
	var unknown []uint16
	s.mu.Lock()
	for _, n := range numbers {
		if !s.numbers[n] {
			unknown = append(unknown, n)
		}
		delete(s.numbers, n)
	}
	s.mu.Unlock()
	done(unknown, nil)
}

func (s *fakeSession) Pins(context.Context) ([]sessionPin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.pins), nil
}

func (s *fakeSession) Unpin(id kernel.PinID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pins = slices.DeleteFunc(s.pins, func(p sessionPin) bool { return p.PinID == id })
}

func (s *fakeSession) PinNumber(id kernel.PinID, done kernel.Completion) error {
	s.mu.Lock()
	s.pins = append(s.pins, sessionPin{Pin: kernel.Pin{PinID: id, Taken: true}})
	s.mu.Unlock()
	done.Completed(uint64(id.Number), kernel.Result{})
	done.Flush()
	return nil
}

func (s *fakeSession) RetainedAgain(name string, version uint64) (kernel.Record, bool, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	for _, list := range s.node.retained {
		for _, r := range list {
			if r.Name == name && r.Version == version {
				return r.Record, true, nil
			}
		}
	}
	return kernel.Record{}, false, nil
}

func (s *fakeSession) Keep(b []byte) { s.kept = b }

func (s *fakeSession) Kept() ([]byte, error) { return s.kept, nil }

func (s *fakeSession) Detach(expiry time.Duration) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	s.expiry, s.taken = expiry, nil
	if w := s.will; w != nil && min(w.Delay, expiry) > 0 {
		s.left = time.AfterFunc(min(w.Delay, expiry), func() {
			s.node.mu.Lock()
			defer s.node.mu.Unlock()
			s.node.publishWill(s)
		})
	} else {
		s.node.publishWill(s)
	}
	if expiry == 0 && s.node.sessions[s.id] == s {
		delete(s.node.sessions, s.id)
	}
	close(s.detached)
}

func (s *fakeSession) SetWill(_ context.Context, w *kernel.Will) error {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	s.will = w
	return s.node.willErr
}

func (s *fakeSession) DropWill() error {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	s.will = nil
	return nil
}

func (s *fakeSession) Retained(_ context.Context, filter string) (cursor, error) {
	s.node.mu.Lock()
	defer s.node.mu.Unlock()
	return &fakeCursor{list: slices.Clone(s.node.retained[filter])}, nil
}

// fakeCursor gives out a list a few at a time.
type fakeCursor struct{ list []kernel.Retained }

func (c *fakeCursor) Next(_, _ int, _ func(int) bool) (list []kernel.Retained, more bool, err error) {
	n := min(3, len(c.list))
	list, c.list = c.list[:n], c.list[n:]
	return list, len(c.list) > 0, nil
}
