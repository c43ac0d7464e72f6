package forward

import (
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// asked is a subscription that a client asks for; id is of the member or the live feed
// that it becomes.
type asked struct {
	id  uint64
	sub kernel.Subscription
}

// asked reads what a client subscribes to.
func (r *reader) asked() (list []asked) {
	for range r.Count() {
		if r.Err() != nil {
			return nil
		}
		list = append(list, asked{r.Uint(), r.subscription()})
	}
	return list
}

// What a subscription has become.
const (
	becameNone byte = iota
	becameMember
	becameLive
)

// subscribe makes subscriptions, or attaches those that the session has.
func (h *holding) subscribe(again bool, list []asked) (func([]byte) []byte, error) {
	specs, stubs := make([]broker.SubscribeSpec, len(list)), make([]*stub, len(list))
	for i := range list {
		stubs[i] = &stub{session: h.c, id: list[i].id, holding: h}
		specs[i] = broker.SubscribeSpec{
			Subscription: list[i].sub, Handle: list[i].id, To: stubs[i], Live: &watch{h.c, list[i].id},
		}
	}
	var out []broker.Subscribed
	if again {
		for _, s := range specs {
			a, err := h.s.Attach(h.c.ctx, s.Subscription, s.Handle, s.To, s.Live)
			out = append(out, broker.Subscribed{Attachment: a, Existed: true, Err: err})
		}
	} else {
		out = h.s.SubscribeAll(h.c.ctx, specs)
	}
	for i := range out {
		if a := out[i].Attachment; out[i].Err == nil && a.Member != nil {
			stubs[i].m = a.Member
			h.enter(stubs[i])
		}
	}
	return func(b []byte) []byte {
		for i := range out {
			b = appendError(b, out[i].Err)
			became := becameLive
			switch {
			case out[i].Err != nil:
				became = becameNone
			case out[i].Attachment.Member != nil:
				became = becameMember
			}
			b = append(codec.AppendFlags(b, out[i].Existed), became)
		}
		return b
	}, nil
}

// enter lists a member of the session. One of an id that is in use breaks the rules.
func (h *holding) enter(k *stub) {
	c := h.c
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	switch _, twice := c.members[k.id]; {
	case twice || len(c.members) >= maxMembers:
		c.stream.Close()
	case c.holding == h: // else it has left with the session
		c.members[k.id] = k
	}
}

// placeCall returns what asks a member of the session.
func (c *session) placeCall(call uint64, m method, r *reader) answer {
	k := c.member(r.Uint())
	if m == methodRead {
		p := r.place()
		return func() (func([]byte) []byte, error) { return c.readPlace(call, k, p) }
	}
	var places []kernel.Place
	for range r.Count() {
		if r.Err() != nil {
			return nil
		}
		places = append(places, r.place())
	}
	return func() (func([]byte) []byte, error) {
		held := make([]bool, len(places))
		if k != nil {
			held = k.m.Hold(places)
		}
		return func(b []byte) []byte {
			for _, one := range held {
				b = codec.AppendFlags(b, one)
			}
			return b
		}, nil
	}
}

// readPlace reads one record for a member.
func (c *session) readPlace(call uint64, k *stub, p kernel.Place) (func([]byte) []byte, error) {
	if k == nil {
		return nil, kernel.Errorf(kernel.CodeDropped, "", "", "the member has left")
	}
	there := k.m.Read(p, func(v *kernel.View) {
		c.out.mu.Lock()
		defer c.out.mu.Unlock()
		c.out.grow(v.CarriedSize() + 64)
		c.result(call, nil, func(b []byte) []byte { return v.AppendCarried(codec.AppendFlags(b, true)) })
	})
	if there {
		return nil, errAnswered
	}
	return func(b []byte) []byte { return codec.AppendFlags(b, false) }, nil
}

// pin handles a frame about a pin of a member. Members that the client has let go of are
// none of anybody's business.
func (c *session) pin(k kind, r *reader) error {
	member, id, p := r.Uint(), r.pinID(), kernel.Place{}
	if k != kindUnpin {
		p = r.place()
	}
	if err := r.done(k); err != nil {
		return err
	}
	c.out.mu.Lock()
	h, m := c.holding, c.members[member]
	c.out.mu.Unlock()
	switch {
	case h == nil:
		return errNoSession
	case m == nil:
		return nil
	case m.holding == nil:
		return fmt.Errorf("%w: a pin of a member that is not the session's", errMalformed)
	}
	switch k {
	case kindPin:
		m.m.Pin(id, p.Partition, p.Offset)
	case kindTake:
		m.m.Take(id, p.Partition, p.Offset)
	case kindRefuse:
		m.m.Refuse(id, p.Partition, p.Offset)
	case kindUnpin:
		m.m.Unpin(id)
	}
	return nil
}

// Pinned implements kernel.Pinner.
func (m *stub) Pinned(numbers []uint16, err error) { m.pinned(kindPinned, numbers, err) }

// Taken implements kernel.Pinner.
func (m *stub) Taken(numbers []uint16, err error) { m.pinned(kindTaken, numbers, err) }

func (m *stub) pinned(k kind, numbers []uint16, err error) {
	o := &m.session.out
	o.mu.Lock()
	defer o.mu.Unlock()
	start := o.begin(k)
	o.buf = appendNumbers(appendError(codec.AppendUint(o.buf, m.id), err), numbers)
	o.end(start)
}
