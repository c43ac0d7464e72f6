package mqtt

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// subscribe handles SUBSCRIBE: all filters together, then SUBACK, then credit, so
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
	subs, feeds := make([]kernel.Subscription, len(req.Filters)), make([]*feed, len(req.Filters))
	for i, flt := range req.Filters {
		subs[i] = kernel.Subscription{Filter: flt.Name, QoS: flt.QoS, Options: flt.Options, Identifier: req.Identifier}
		feeds[i] = newFeed(c, subs[i])
		feeds[i].expectRetained(&subs[i])
	}
	results := c.subscribeAll(subs, feeds)
	if c.ctx.Err() != nil {
		return errEnded
	}
	c.answerSubscribe(req.ID, subs, results)
	for i, r := range results {
		if r.Err == nil {
			c.addFeed(feeds[i], r.Member)
			if err := c.retained(feeds[i], &subs[i], r.Existed); err != nil {
				return err
			}
		}
	}
	c.replenish()
	return nil
}

// subscribeAll makes the subscriptions, if somebody serves in time.
func (c *conn) subscribeAll(subs []kernel.Subscription, feeds []*feed) []subscribed {
	if !c.awaitHost() {
		out := make([]subscribed, len(subs))
		for i := range out {
			out[i].Err = errNobody
		}
		return out
	}
	specs := make([]broker.SubscribeSpec, len(subs))
	for i, f := range feeds {
		specs[i] = broker.SubscribeSpec{Subscription: subs[i], To: f, Live: f}
	}
	return c.session.Subscribe(c.ctx, specs)
}

// answerSubscribe sends SUBACK, with the first reason there is.
func (c *conn) answerSubscribe(id uint16, subs []kernel.Subscription, results []subscribed) {
	codes := make([]wire.Code, len(results))
	reason := ""
	for i, r := range results {
		if r.Err == nil {
			codes[i] = wire.Code(subs[i].QoS)
			continue
		}
		codes[i] = subscribeReason(r.Err)
		if reason == "" && c.problem {
			reason = explain(r.Err)
		}
	}
	p := wire.AppendSuback(nil, c.version, id, codes, reason)
	if c.out.tooLarge(len(p)) {
		p = wire.AppendSuback(nil, c.version, id, codes, "")
	}
	c.out.packet(p)
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
	served := c.awaitHost()
	if !served && c.version != wire.V5 {
		return fault(wire.ServerBusy, "no node serves now") // UNSUBACK cannot say so
	}
	c.settleRun() // what is acknowledged already counts before the group goes
	codes := make([]wire.Code, len(req.Filters))
	for i, name := range req.Filters {
		if !served {
			codes[i] = subscribeReason(errNobody)
			continue
		}
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
