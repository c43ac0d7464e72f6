package broker

import (
	"context"
	"errors"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/retain"
)

// flights are publishes under way, by generation. Who subscribes begins a new one
// and waits for those before: what they publish was routed without the
// subscription, and has to be found among what is retained.
type flights struct {
	mu      sync.Mutex
	gen     uint64
	open    map[uint64]int
	changed chan struct{} // closed when a generation has ended; nil: nobody waits
}

func (f *flights) begin() (gen uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		f.open = make(map[uint64]int)
	}
	f.open[f.gen]++
	return f.gen
}

func (f *flights) end(gen uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open[gen]--; f.open[gen] > 0 {
		return
	}
	delete(f.open, gen)
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// wait returns when all that had begun before has ended.
func (f *flights) wait(ctx context.Context) error {
	f.mu.Lock()
	last := f.gen
	if len(f.open) > 0 {
		f.gen++
	}
	for f.anyUpTo(last) {
		if f.changed == nil {
			f.changed = make(chan struct{})
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
		f.mu.Lock()
	}
	f.mu.Unlock()
	return nil
}

func (f *flights) anyUpTo(last uint64) bool {
	for gen := range f.open {
		if gen <= last {
			return true
		}
	}
	return false
}

// Retained reads what is retained under the names that a filter matches, a part
// at a time. It is for one goroutine.
type Retained struct {
	tenant *tenant
	filter *retain.Filter
	from   string
	more   bool
	found  []retain.Found
}

// Retained begins to read what is retained under the names that a subscription's
// filter, no share address, matches. What was published before the subscription
// is there, or will be read in a state after it: that is waited for.
func (h *Session) Retained(ctx context.Context, filter string) (*Retained, error) {
	ctx, cancel := context.WithTimeout(ctx, flightWait)
	defer cancel()
	if err := h.conn.b.retained.flight.wait(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	return &Retained{tenant: h.conn.tenant, filter: retain.NewFilter(filter), more: true}, nil
}

// Next returns up to max messages, and no more once they have reached so many
// bytes. more says that others may follow. Those that have expired are left out.
// After an error it may be called again. admit is asked before a message of
// kernel.LargeDelivery bytes or more is read; with false it is the first of the next
// call.
func (r *Retained) Next(max, bytes int, admit func(bytes int) bool) (list []kernel.Retained, more bool, err error) {
	if !r.more {
		return nil, false, nil
	}
	b := r.tenant.b
	var next string
	r.found, next, r.more = b.retained.of(r.tenant.name).Page(r.filter, r.from, max, r.found[:0])
	now := b.now().UnixMilli()
	for i := range r.found {
		f := &r.found[i]
		if bytes <= 0 {
			next, r.more = f.Name, true
			break
		}
		if f.Expires != 0 && f.Expires <= now {
			continue
		}
		if f.Size >= kernel.LargeDelivery && !admit(f.Size) {
			next, r.more = f.Name, true
			break
		}
		rec, n, err := r.tenant.readRetained(f)
		if kernel.CodeOf(err) == kernel.CodeCorrupt {
			b.log.Error().Err(err).Msg("a retained message cannot be read and is left out")
			continue
		}
		if err != nil {
			r.from, r.more = f.Name, true
			return list, true, err
		}
		if n > 0 {
			bytes -= n
			list = append(list, kernel.Retained{Name: f.Name, Record: rec, Version: f.Index})
		}
	}
	r.from = next
	return list, r.more, nil
}

// RetainedAgain returns the message of a version that is retained under a name; ok is
// false if another one is by now, or none.
func (h *Session) RetainedAgain(name string, version uint64) (r kernel.Record, ok bool, err error) {
	t := h.conn.tenant
	f, ok := t.b.retained.of(t.name).Find(name)
	if !ok || f.Index != version {
		return r, false, nil
	}
	r, n, err := t.readRetained(&f)
	return r, n > 0, err
}

// readRetained returns a message and its size, 0 if it has gone or expired meanwhile.
func (t *tenant) readRetained(f *retain.Found) (rec kernel.Record, size int, err error) {
	value := []byte(f.Value)
	if f.Value == "" {
		if value, err = t.b.durable.Get(retain.Key(t.name, f.Name)); err != nil || value == nil {
			return rec, 0, err
		}
	}
	rec, err = retain.Read(value)
	if err != nil {
		return rec, 0, kernel.Errorf(kernel.CodeCorrupt, "topic", f.Name, "%v", err)
	}
	if at := retain.ExpiresAt(&rec); at != 0 && at <= t.b.now().UnixMilli() {
		return rec, 0, nil
	}
	return rec, len(f.Name) + len(value), nil
}
