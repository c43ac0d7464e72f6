package mqtt

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// maxSubscriptions bounds the subscriptions of one connection.
const maxSubscriptions = 100_000

// subscribe handles SUBSCRIBE: filter by filter, then SUBACK, then credit, so
// that the SUBACK is out before the first stored message.
func (c *conn) subscribe(body []byte) error {
	req, err := wire.ParseSubscribe(c.version, body)
	if err != nil {
		return err
	}
	for i := range req.Filters {
		if err := c.checkFilter(&req.Filters[i]); err != nil {
			return err
		}
	}
	codes := make([]wire.Code, len(req.Filters))
	reason := ""
	type activation struct {
		feed   *feed
		member member
	}
	var ready []activation
	for i, flt := range req.Filters {
		sub := kernel.Subscription{Filter: flt.Name, QoS: min(flt.QoS, 1), Options: flt.Options, Identifier: req.Identifier}
		f := newFeed(c, sub)
		m, err := c.addSubscription(sub, f)
		if c.ctx.Err() != nil {
			return errEnded
		}
		if err != nil {
			codes[i] = subscribeReason(err)
			if reason == "" {
				reason = explain(err)
			}
			continue
		}
		codes[i] = wire.Code(sub.QoS)
		ready = append(ready, activation{f, m})
	}
	if !c.problem {
		reason = ""
	}
	p := wire.AppendSuback(nil, c.version, req.ID, codes, reason)
	if c.out.tooLarge(len(p)) {
		p = wire.AppendSuback(nil, c.version, req.ID, codes, "")
	}
	c.out.packet(p)
	for _, a := range ready {
		c.addFeed(a.feed, a.member)
	}
	c.replenish()
	return nil
}

func (c *conn) addSubscription(sub kernel.Subscription, f *feed) (member, error) {
	if len(c.feeds) >= maxSubscriptions && c.feeds[sub.Filter] == nil {
		return nil, kernel.Errorf(kernel.CodeLimit, "subscription", sub.Filter, "too many subscriptions")
	}
	return c.session.Subscribe(c.ctx, sub, f)
}

// addFeed takes a subscription's feed into use, in place of an earlier one on
// the same filter.
func (c *conn) addFeed(f *feed, m member) {
	if old := c.feeds[f.filter]; old != nil {
		c.dropFeed(old)
	}
	c.feeds[f.filter] = f
	if m != nil && f.noLocal {
		c.noLocals++
	}
	f.activate(m)
}

func (c *conn) dropFeed(f *feed) {
	delete(c.feeds, f.filter)
	if f.member != nil && f.noLocal {
		c.noLocals--
	}
	f.retire()
}

// checkFilter checks a topic filter and its options; what it refuses ends the
// connection (4.7.1, 3.8.3.1, 4.8.2).
func (c *conn) checkFilter(f *wire.Filter) error {
	share := kernel.IsShare(f.Name)
	if share && f.Options&wire.OptionNoLocal != 0 {
		return fault(wire.ProtocolError, "No Local on a shared subscription")
	}
	return checkFilterName(f.Name)
}

func checkFilterName(name string) error {
	filter := name
	if kernel.IsShare(name) {
		addr, create, err := kernel.ParseShare("", name)
		if err != nil {
			return fault(wire.TopicFilterInvalid, explain(err))
		}
		if !create {
			return nil // $queue/x takes x as it is
		}
		filter = addr.Topic
	}
	if err := kernel.CheckFilter(filter); err != nil {
		return fault(wire.TopicFilterInvalid, explain(err))
	}
	return nil
}

// unsubscribe handles UNSUBSCRIBE.
func (c *conn) unsubscribe(body []byte) error {
	req, err := wire.ParseUnsubscribe(c.version, body)
	if err != nil {
		return err
	}
	for _, name := range req.Filters {
		if err := checkFilterName(name); err != nil {
			return err
		}
	}
	c.settleRun() // what is acknowledged already counts before the group goes
	codes := make([]wire.Code, len(req.Filters))
	for i, name := range req.Filters {
		existed, err := c.session.Unsubscribe(c.ctx, name)
		if c.ctx.Err() != nil {
			return errEnded
		}
		switch {
		case err != nil:
			codes[i] = subscribeReason(err)
			continue
		case !existed:
			codes[i] = wire.NoSubscriptionExisted
		}
		if f := c.feeds[name]; f != nil {
			c.dropFeed(f)
		}
	}
	c.out.packet(wire.AppendUnsuback(nil, c.version, req.ID, codes))
	return nil
}
