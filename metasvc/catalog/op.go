package catalog

import (
	"bytes"

	"github.com/trivium-mq/trivium/kernel"
)

// Op is one change to the metadata. Ops of one Command happen all or not at
// all.
type Op interface {
	kind() opKind
	append(b []byte) []byte
	apply(s *State, res *Result) error
}

type opKind uint8

// The kinds of op, part of the on-disk format.
const (
	opPutExchange opKind = 1 + iota
	opDropExchange
	opPutTopic
	opDropTopic
	opPutGroup
	opDropGroup
	opPutBinding
	opDropBinding
	opTakeProducers
	opSetProducers
)

// Ops on exchanges and bindings that the kinds above have no room for; what
// those can say is still written as before.
const (
	opPutExchangeArguments opKind = 20 + iota
	opPutExchangeBinding
	opDropExchangeBinding
)

// Those of access.go.
const (
	opPutTenant opKind = 30 + iota
	opDropTenant
	opPutUser
	opDropUser
	opPutPermission
	opDropPermission
	opPutTopicPermission
	opDropTopicPermission
)

// Result is what a command brings beyond the new state.
type Result struct {
	// Revision is that of the state after it.
	Revision uint64
	// Producers is the first producer id of the block that TakeProducers took.
	Producers int64
}

// PutExchange makes a durable exchange. CodeExists if there is one with other
// properties.
type PutExchange struct{ Exchange kernel.Exchange }

// DropExchange removes an exchange with its bindings; a missing one is no
// error.
type DropExchange struct{ Tenant, Name string }

// PutTopic makes a topic or replaces the properties of the one with the same
// ID. CodeExists if its name belongs to another one.
type PutTopic struct{ Topic kernel.Topic }

// DropTopic removes a topic with its groups and bindings; a missing one is no
// error.
type DropTopic struct{ ID kernel.TopicID }

// PutGroup makes a share group or replaces the properties of the one with the
// same address. CodeNotFound if its topic is missing.
type PutGroup struct{ Group Group }

// DropGroup removes a share group; a missing one is no error.
type DropGroup struct {
	Topic kernel.TopicID
	Group string
}

// PutBinding adds a binding; an equal one is no error. CodeNotFound if one of
// its ends is missing.
type PutBinding struct{ Binding Binding }

// DropBinding removes a binding; an absent one is no error.
type DropBinding struct{ Binding Binding }

// TakeProducers reserves a block of producer ids.
type TakeProducers struct{ Count int64 }

// setProducers restores the counter from a snapshot.
type setProducers struct{ next int64 }

func (DropExchange) kind() opKind  { return opDropExchange }
func (PutTopic) kind() opKind      { return opPutTopic }
func (DropTopic) kind() opKind     { return opDropTopic }
func (PutGroup) kind() opKind      { return opPutGroup }
func (DropGroup) kind() opKind     { return opDropGroup }
func (TakeProducers) kind() opKind { return opTakeProducers }
func (setProducers) kind() opKind  { return opSetProducers }

func (op PutExchange) kind() opKind {
	if len(op.Exchange.Arguments) > 0 {
		return opPutExchangeArguments
	}
	return opPutExchange
}

func (op PutBinding) kind() opKind {
	if op.Binding.ToExchange {
		return opPutExchangeBinding
	}
	return opPutBinding
}

func (op DropBinding) kind() opKind {
	if op.Binding.ToExchange {
		return opDropExchangeBinding
	}
	return opDropBinding
}

// Apply returns the state after ops, or s itself and an error if one of them
// is refused.
func (s *State) Apply(ops []Op) (*State, Result, error) {
	next, res := *s, Result{}
	for _, op := range ops {
		if err := op.apply(&next, &res); err != nil {
			return s, Result{Revision: s.revision}, err
		}
	}
	next.revision++
	res.Revision = next.revision
	return &next, res, nil
}

func (op PutExchange) apply(s *State, _ *Result) error {
	x := op.Exchange
	if old, ok := s.Exchange(x.Tenant, x.Name); ok && !sameExchange(old, &x) {
		return kernel.Errorf(kernel.CodeExists, "exchange", x.Name, "it exists with other properties")
	}
	s.exchanges = s.exchanges.Put(join(x.Tenant, x.Name), &x)
	return nil
}

func (op DropExchange) apply(s *State, _ *Result) error {
	s.exchanges = s.exchanges.Delete(join(op.Tenant, op.Name))
	drop := func(_ string, b *Binding) bool {
		s.dropBinding(b)
		return true
	}
	s.sources.Walk(join(op.Tenant, op.Name, ""), drop)
	s.bindings.Walk(join(op.Tenant, exchangeMark+op.Name, ""), drop)
	return nil
}

// sameExchange reports whether two exchanges are declared alike.
func sameExchange(a, b *kernel.Exchange) bool {
	return bytes.Equal(PutExchange{*a}.append(nil), PutExchange{*b}.append(nil))
}

func (op PutTopic) apply(s *State, _ *Result) error {
	t := op.Topic
	key := topicKey(t.Tenant, t.Kind, t.Name)
	if old, ok := s.names.Get(key); ok && old.ID != t.ID {
		return kernel.Errorf(kernel.CodeExists, "topic", t.Name, "it exists")
	}
	s.topics = s.topics.Put(string(t.ID[:]), &t)
	s.names = s.names.Put(key, &t)
	return nil
}

func (op DropTopic) apply(s *State, _ *Result) error {
	t, ok := s.TopicByID(op.ID)
	if !ok {
		return nil
	}
	s.topics = s.topics.Delete(string(t.ID[:]))
	s.names = s.names.Delete(topicKey(t.Tenant, t.Kind, t.Name))
	s.groups = s.groups.DeletePrefix(string(t.ID[:]))
	if t.Kind == kernel.Plain {
		s.bindings.Walk(join(t.Tenant, t.Name, ""), func(_ string, b *Binding) bool {
			s.dropBinding(b)
			return true
		})
	}
	return nil
}

func (op PutGroup) apply(s *State, _ *Result) error {
	g := op.Group
	if _, ok := s.TopicByID(g.Topic); !ok {
		return kernel.Errorf(kernel.CodeNotFound, "topic", g.Address.Topic, "it does not exist")
	}
	s.groups = s.groups.Put(groupKey(g.Topic, g.Address.Group), &g)
	return nil
}

func (op DropGroup) apply(s *State, _ *Result) error {
	s.groups = s.groups.Delete(groupKey(op.Topic, op.Group))
	return nil
}

func (op PutBinding) apply(s *State, _ *Result) error {
	b := op.Binding
	if !s.hasExchange(b.Tenant, b.Exchange) {
		return kernel.Errorf(kernel.CodeNotFound, "exchange", b.Exchange, "it does not exist")
	}
	if b.ToExchange {
		if !s.hasExchange(b.Tenant, b.Queue) {
			return kernel.Errorf(kernel.CodeNotFound, "exchange", b.Queue, "it does not exist")
		}
	} else if _, ok := s.Topic(b.Tenant, kernel.Plain, b.Queue); !ok {
		return kernel.Errorf(kernel.CodeNotFound, "queue", b.Queue, "it does not exist")
	}
	s.bindings = s.bindings.Put(bindingKey(&b, target(&b), b.Exchange), &b)
	s.sources = s.sources.Put(bindingKey(&b, b.Exchange, target(&b)), &b)
	return nil
}

func (s *State) hasExchange(tenant, name string) bool {
	_, ok := s.Exchange(tenant, name)
	return ok || Predeclared(name)
}

func (op DropBinding) apply(s *State, _ *Result) error {
	s.dropBinding(&op.Binding)
	return nil
}

func (s *State) dropBinding(b *Binding) {
	s.bindings = s.bindings.Delete(bindingKey(b, target(b), b.Exchange))
	s.sources = s.sources.Delete(bindingKey(b, b.Exchange, target(b)))
}

func (op TakeProducers) apply(s *State, res *Result) error {
	res.Producers = s.producers
	s.producers += op.Count
	return nil
}

func (op setProducers) apply(s *State, _ *Result) error {
	s.producers = op.next
	return nil
}
