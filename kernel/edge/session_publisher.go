package edge

import (
	"cmp"

	"github.com/trivium-mq/trivium/kernel"
)

// ToTopic is broker.Publisher.ToTopic.
func (p *publisher) ToTopic(name string, r *kernel.Record, token uint64) (int, error) {
	return p.named(Publisher.ToTopic, name, r, token)
}

// Retain is broker.Publisher.Retain.
func (p *publisher) Retain(name string, r *kernel.Record, token uint64) (int, error) {
	return p.named(Publisher.Retain, name, r, token)
}

// named publishes to a topic, as keyed does to an exchange.
func (p *publisher) named(publish func(Publisher, string, *kernel.Record, uint64) (int, error), name string, r *kernel.Record, token uint64) (matched int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.bind()
	if in == nil {
		return 0, ErrUnlinked
	}
	if p.ident == (kernel.DedupID{}) {
		matched, err = publish(in, name, r, token)
	} else {
		matched, err = in.Identified(p.ident, func() (int, error) { return publish(in, name, r, token) })
	}
	return matched, p.judge(err)
}

// ToTopicOnce is broker.Publisher.ToTopicOnce; s is of the same connection.
func (p *publisher) ToTopicOnce(s Session, number uint16, name string, r *kernel.Record, token uint64) (int, error) {
	return p.once(s, func(in SessionPublisher, at Session) (int, error) { return in.ToTopicOnce(at, number, name, r, token) })
}

// RetainOnce is broker.Publisher.RetainOnce; s is of the same connection.
func (p *publisher) RetainOnce(s Session, number uint16, name string, r *kernel.Record, token uint64) (int, error) {
	return p.once(s, func(in SessionPublisher, at Session) (int, error) { return in.RetainOnce(at, number, name, r, token) })
}

// once publishes under a number of a session.
func (p *publisher) once(s Session, publish func(SessionPublisher, Session) (int, error)) (matched int, err error) {
	own := s.(*session)
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.bind()
	if in == nil {
		return 0, ErrUnlinked
	}
	at := own.at(p.on)
	if at == nil {
		return 0, passedBy(own.away())
	}
	if p.ident == (kernel.DedupID{}) {
		matched, err = publish(in, at)
	} else {
		matched, err = in.Identified(p.ident, func() (int, error) { return publish(in, at) })
	}
	if kernel.CodeOf(err) == kernel.CodeFenced {
		return 0, passedBy(cmp.Or(own.passed(at), p.parted(), err))
	}
	return matched, p.judge(err)
}

// parted is errMoved if the link is in use no more: a host that closes lets go of sessions
// that are still to be taken from it. p.mu is held.
func (p *publisher) parted() error {
	if p.c.now.Load() != p.on {
		return errMoved
	}
	return nil
}

// passedBy turns errMoved into the refusal of a publish while nobody serves.
func passedBy(err error) error {
	if again(err) {
		return ErrUnlinked
	}
	return err
}

// Identified is broker.Publisher.Identified.
func (p *publisher) Identified(id kernel.DedupID, publish func() (int, error)) (int, error) {
	p.ident = id
	defer func() { p.ident = kernel.DedupID{} }()
	return publish()
}
