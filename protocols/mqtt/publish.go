package mqtt

import (
	"errors"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// publish handles a PUBLISH: into a record, to the kernel, and into the line
// of PUBACKs and PUBRECs. The record aliases the read buffer; the kernel copies.
func (c *conn) publish(first byte, body []byte) error {
	m := &c.msg
	if err := m.Parse(c.version, first, body); err != nil {
		return err
	}
	in := &c.in
	in.begin(m.Payload, m.QoS)
	if m.Retain {
		in.add(kernel.HeaderRetain, value1)
	}
	if c.version == wire.V5 {
		if err := in.properties(&m.Properties, c.identity.User); err != nil {
			return err
		}
	}
	topic, err := c.topicOf(m)
	if err != nil {
		return err
	}
	if c.noLocals > 0 {
		in.add(kernel.HeaderOrigin, bytesOf(c.clientID))
	}
	in.finish(topic)
	if m.QoS == 0 {
		_, err := c.send(topic, m, noToken)
		if passes(err) {
			c.client.Counters().Shed.Add(1)
		}
		return nil // a refused QoS 0 message is dropped: there is no answer to it
	}
	pt := wire.Puback
	if m.QoS == 2 {
		pt = wire.Pubrec
	}
	token, err := c.queueAck(pt, m.ID, m.Retain)
	if err != nil {
		return err
	}
	matched, err := c.send(topic, m, token)
	switch {
	case err != nil:
		c.acks.complete(token, publishReason(err), kernel.CodeOf(err) != kernel.CodeUnavailable && lost(err))
	case matched == 0:
		c.acks.reachedNobody(token)
	}
	c.acks.submitted.Store(token)
	return nil
}

// topicOf resolves the topic name, by alias if there is one.
func (c *conn) topicOf(m *wire.Message) (string, error) {
	if !c.in.hasAlias {
		if len(m.Topic) == 0 {
			return "", fault(wire.ProtocolError, "empty topic name without an alias")
		}
		return c.names.of(m.Topic), nil
	}
	alias := int(c.in.alias)
	if alias == 0 || alias > c.server.limits.TopicAliases {
		return "", fault(wire.TopicAliasInvalid, "topic alias out of range")
	}
	if len(m.Topic) == 0 {
		if alias >= len(c.aliases) || c.aliases[alias] == "" {
			return "", fault(wire.ProtocolError, "topic alias not defined")
		}
		return c.aliases[alias], nil
	}
	for len(c.aliases) <= alias {
		c.aliases = append(c.aliases, "")
	}
	c.aliases[alias] = c.names.of(m.Topic)
	return c.aliases[alias], nil
}

// queueAck puts a PUBLISH in the line of PUBACKs. A client that has more under
// way than it may is a protocol error in version 5 (4.9); an older one cannot
// know the number and is not read until there is room.
func (c *conn) queueAck(pt byte, id uint16, retained bool) (token uint64, err error) {
	for {
		token, ok := c.acks.add(pt, id, retained)
		if ok {
			return token, nil
		}
		c.Flush() // what is completed but not out yet is not under way any more
		if token, ok = c.acks.add(pt, id, retained); ok {
			return token, nil
		}
		if c.version == wire.V5 {
			return 0, fault(wire.ReceiveMaximumExceeded, "more publishes under way than the receive maximum")
		}
		if c.acks.wait(c.ctx, c.server.limits.ReceiveMaximum) != nil {
			return 0, errEnded
		}
	}
}

// sendNow is send without waiting.
func (c *conn) sendNow(topic string, m *wire.Message, token uint64) (matched int, err error) {
	if len(c.in.id) == 0 {
		return c.hand(topic, m, token)
	}
	return c.publisher.Identified(kernel.NewDedupID(c.in.id), func() (int, error) { return c.hand(topic, m, token) })
}

// hand hands it to the kernel.
func (c *conn) hand(topic string, m *wire.Message, token uint64) (matched int, err error) {
	switch {
	case reservedTopic(topic):
		return 0, kernel.Errorf(kernel.CodeInvalidName, "topic", topic, "the name is reserved")
	case m.QoS == 2 && m.Retain:
		return c.publisher.RetainOnce(c.session, m.ID, topic, &c.in.rec, token)
	case m.QoS == 2:
		return c.publisher.ToTopicOnce(c.session, m.ID, topic, &c.in.rec, token)
	case m.QoS == 1 && c.acks.inUse(m.ID):
		return 0, errInUse
	case m.Retain:
		return c.publisher.Retain(topic, &c.in.rec, token)
	}
	return c.publisher.ToTopic(topic, &c.in.rec, token)
}

// reservedTopic reports the names that clients may not publish to.
func reservedTopic(topic string) bool {
	return topic[0] == '$' && (kernel.IsShare(topic) || strings.HasPrefix(topic, "$SYS/") ||
		strings.HasPrefix(topic, "$session/"))
}

// Unmatched implements edge.Matcher.
func (c *conn) Unmatched(token uint64) {
	if token != noToken {
		c.acks.reachedNobody(token)
	}
}

// Completed implements kernel.Completion.
func (c *conn) Completed(token uint64, res kernel.Result) {
	if token == noToken {
		return
	}
	if res.Err == nil {
		c.acks.complete(token, wire.Success, false)
		return
	}
	c.acks.complete(token, publishReason(res.Err), lost(res.Err))
}

// lost reports whether a publish that was under way cannot be answered. That the node has
// stepped down meanwhile, or has let go of the session for that, is no answer, even where
// it is certain that nothing is stored: the message is not here any more, and most clients
// take every PUBACK for a success. At the end of the connection they keep it and publish it
// again.
func lost(err error) bool {
	switch kernel.CodeOf(err) {
	case kernel.CodeUnknown, kernel.CodeUnavailable, kernel.CodeFenced:
		return true
	}
	return false
}

// Why a connection ends that cannot be told what became of a publish.
var (
	errLost     = errors.New("the outcome of a publish is unknown")
	errNoAnswer = errors.New("a publish was refused, which the version cannot say")
)

// errInUse answers a QoS 1 publish under the identifier of a QoS 2 one that has not
// ended.
var errInUse = errors.New("packet identifier in use")

// publishReason is reasonOf for PUBACK and PUBREC.
func publishReason(err error) wire.Code {
	if errors.Is(err, errInUse) {
		return wire.PacketIDInUse
	}
	return reasonOf(err)
}

// Flush implements kernel.Completion: the completed head of the line of PUBACKs
// goes to the writer. An unknown outcome is not answered, and in version 3.1.1,
// whose PUBACK can only say yes, no refusal is: the connection ends, and the
// client sends the message again.
func (c *conn) Flush() {
	switch bad := c.releaseAcks(); {
	case bad.id == 0:
	case bad.lost:
		c.end(wire.UnspecifiedError, "the outcome of a publish is unknown", errLost)
	default:
		c.end(bad.code, "a publish was refused", errNoAnswer)
	}
}

// releaseAcks appends the PUBACKs that are due, and returns the one that cannot
// be sent, if there is one.
func (c *conn) releaseAcks() (bad ack) {
	a, s := &c.acks, &c.out
	a.mu.Lock()
	defer a.mu.Unlock()
	s.mu.Lock()
	defer s.unlock()
	for e := a.due(); e != nil; e = a.due() {
		if e.lost || c.version != wire.V5 && e.code >= wire.UnspecifiedError {
			return *e
		}
		s.ackLocked(e.pt, e.id, e.code)
		a.drop()
	}
	return ack{}
}
