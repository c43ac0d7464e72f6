package forward

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
)

var _ edge.SessionPublisher = (*publisher)(nil)

// ToTopic implements edge.SessionPublisher. As ToExchange it reports one target; who is a
// edge.Matcher hears of it if there was none. A refusal that comes later, as edge.Decliner
// or as the outcome, concerns that publish alone. While there is an alarm, which the
// link's Alarms shows, a publish that is short of disk or memory is refused with
// CodePressure; one that was on its way when the alarm was raised waits for its end.
func (p *publisher) ToTopic(name string, r *kernel.Record, token uint64) (matched int, err error) {
	return p.toTopic(publish{}, nil, name, r, token)
}

// ToTopicOnce implements edge.SessionPublisher.
func (p *publisher) ToTopicOnce(s edge.Session, number uint16, name string, r *kernel.Record, token uint64) (matched int, err error) {
	of, err := p.link.mine(s)
	if err != nil {
		return 0, err
	}
	return p.toTopic(publish{once: true, use: number}, of, name, r, token)
}

// Retain implements edge.SessionPublisher.
func (p *publisher) Retain(name string, r *kernel.Record, token uint64) (matched int, err error) {
	return p.toTopic(publish{retain: true}, nil, name, r, token)
}

// RetainOnce implements edge.SessionPublisher.
func (p *publisher) RetainOnce(s edge.Session, number uint16, name string, r *kernel.Record, token uint64) (matched int, err error) {
	of, err := p.link.mine(s)
	if err != nil {
		return 0, err
	}
	return p.toTopic(publish{retain: true, once: true, use: number}, of, name, r, token)
}

// Identified implements edge.SessionPublisher.
func (p *publisher) Identified(id kernel.DedupID, publish func() (int, error)) (matched int, err error) {
	p.ident = id
	defer func() { p.ident = kernel.DedupID{} }()
	return publish()
}

// toTopic publishes as how says. s is the session whose number it uses.
func (p *publisher) toTopic(how publish, s *attached, name string, r *kernel.Record, token uint64) (int, error) {
	c := &p.carried
	c.named, c.once, c.use, c.known = true, how.once, how.use, p.link.alarms.Load().Any()
	p.user = s
	defer func() {
		c.named, c.once, c.use, c.known = false, false, 0, false
		p.user = nil
	}()
	opt := kernel.PublishOptions{ID: p.ident}
	return p.publish(how.retain, "", name, r, &opt, token)
}

// mine returns the session that the link holds, if it is that one.
func (l *link) mine(s edge.Session) (*attached, error) {
	a, ok := s.(*attached)
	if !ok || a.link != l {
		return nil, kernel.Errorf(kernel.CodeInternal, "", "", "the session is held by another link")
	}
	return a, nil
}
