package catalog

import (
	"errors"
	"fmt"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// Version is the version byte of commands and snapshots.
const Version = 1

// ErrVersion matches the error of a command or snapshot written by a version
// this one does not know.
var ErrVersion = errors.New("catalog: unknown version")

// CommandID tells the proposer which of its proposals was applied: Boot is
// drawn at random when a process starts, Seq counts in it.
type CommandID struct{ Boot, Seq uint64 }

// Command is one entry of the catalog's log.
type Command struct {
	ID  CommandID
	Ops []Op
}

// Append appends the encoding of c.
func (c *Command) Append(b []byte) []byte {
	b = append(b, Version)
	b = codec.AppendUint(b, c.ID.Boot)
	b = codec.AppendUint(b, c.ID.Seq)
	b = codec.AppendUint(b, uint64(len(c.Ops)))
	for _, op := range c.Ops {
		b = appendOp(b, op)
	}
	return b
}

// DecodeCommand decodes what Append wrote. Nothing in it aliases data.
func DecodeCommand(data []byte) (Command, error) {
	r := &codec.Reader{B: data}
	if v := r.Byte(); r.Err() == nil && v != Version {
		return Command{}, fmt.Errorf("%w %d of a command", ErrVersion, v)
	}
	c := Command{ID: CommandID{Boot: r.Uint(), Seq: r.Uint()}}
	for range r.Count() {
		op, err := readOp(r)
		if err != nil {
			return Command{}, fmt.Errorf("catalog command: %w", err)
		}
		c.Ops = append(c.Ops, op)
	}
	if err := r.Done(); err != nil {
		return Command{}, fmt.Errorf("catalog command: %w", err)
	}
	return c, nil
}

func appendOp(b []byte, op Op) []byte { return op.append(append(b, byte(op.kind()))) }

func readOp(r *codec.Reader) (Op, error) {
	var op Op
	switch kind := opKind(r.Byte()); kind {
	case opPutExchange:
		op = PutExchange{readExchange(r)}
	case opPutExchangeArguments:
		x := readExchange(r)
		x.Arguments = r.Arguments()
		op = PutExchange{x}
	case opDropExchange:
		op = DropExchange{Tenant: r.String(), Name: r.String()}
	case opPutTopic:
		op = PutTopic{readTopic(r)}
	case opDropTopic:
		op = DropTopic{readID(r)}
	case opPutGroup:
		op = PutGroup{readGroup(r)}
	case opDropGroup:
		op = DropGroup{Topic: readID(r), Group: r.String()}
	case opPutBinding:
		op = PutBinding{readBinding(r, false)}
	case opDropBinding:
		op = DropBinding{readBinding(r, false)}
	case opPutExchangeBinding:
		op = PutBinding{readBinding(r, true)}
	case opDropExchangeBinding:
		op = DropBinding{readBinding(r, true)}
	case opTakeProducers:
		op = TakeProducers{r.Int()}
	case opSetProducers:
		op = setProducers{r.Int()}
	case opPutPolicy, opDropPolicy:
		op = readPolicy(kind, r)
	case opPutNode, opDropNode, opDrainNode, opPutRemoved, opLeaveNode, opForgetNodes:
		op = readNode(kind, r)
	default:
		if op = readAccess(kind, r); op == nil && r.Err() == nil {
			return nil, fmt.Errorf("%w: op %d", ErrVersion, kind)
		}
	}
	return op, r.Err()
}

func (op PutExchange) append(b []byte) []byte {
	x := &op.Exchange
	b = codec.AppendString(b, x.Tenant)
	b = codec.AppendString(b, x.Name)
	b = codec.AppendString(b, string(x.Type))
	b = codec.AppendFlags(b, x.AutoDelete, x.Internal)
	if op.kind() == opPutExchangeArguments {
		b = codec.AppendArguments(b, x.Arguments)
	}
	return b
}

func readExchange(r *codec.Reader) kernel.Exchange {
	x := kernel.Exchange{Tenant: r.String(), Name: r.String(), Type: kernel.ExchangeType(r.String()), Durable: true}
	r.Flags(&x.AutoDelete, &x.Internal)
	return x
}

func (op DropExchange) append(b []byte) []byte {
	return codec.AppendString(codec.AppendString(b, op.Tenant), op.Name)
}

func (op PutTopic) append(b []byte) []byte {
	t := &op.Topic
	b = append(b, t.ID[:]...)
	b = codec.AppendString(b, t.Tenant)
	b = codec.AppendString(b, t.Name)
	b = append(b, byte(t.Kind))
	b = codec.AppendUint(b, uint64(t.Partitions))
	b = codec.AppendUint(b, uint64(t.Placement))
	b = codec.AppendFlags(b, t.Retention.Delete, t.Internal, t.Auto, t.Queue != nil, t.Retention.Bytes > 0)
	b = codec.AppendInt(b, int64(t.Retention.Age))
	if t.Retention.Bytes > 0 {
		b = codec.AppendInt(b, t.Retention.Bytes)
	}
	b = codec.AppendInt(b, millis(t.ExpiresAt))
	if t.Queue != nil {
		b = appendQueue(b, t.Queue)
	}
	return b
}

func readTopic(r *codec.Reader) kernel.Topic {
	t := kernel.Topic{ID: readID(r), Tenant: r.String(), Name: r.String(), Kind: kernel.TopicKind(r.Byte())}
	t.Partitions, t.Placement = int32(r.Uint()), uint32(r.Uint())
	var queue, bytes bool
	r.Flags(&t.Retention.Delete, &t.Internal, &t.Auto, &queue, &bytes)
	t.Retention.Age = time.Duration(r.Int())
	if bytes {
		t.Retention.Bytes = r.Int()
	}
	t.ExpiresAt = instant(r.Int())
	if queue {
		t.Queue = readQueue(r)
	}
	return t
}

func (op DropTopic) append(b []byte) []byte { return append(b, op.ID[:]...) }

func (op PutGroup) append(b []byte) []byte {
	g := &op.Group
	b = append(b, g.Topic[:]...)
	b = codec.AppendString(b, g.Address.Tenant)
	b = append(b, byte(g.Address.Kind))
	b = codec.AppendString(b, g.Address.Group)
	b = codec.AppendString(b, g.Address.Topic)
	b = codec.AppendFlags(b, g.Owner, g.FromStart, g.Auto, g.Queue != nil, g.Start.Kind != 0)
	b = codec.AppendUint(b, uint64(g.FailedLimit))
	b = codec.AppendUint(b, uint64(g.AcquiredLimit))
	if g.Start.Kind != 0 {
		b = codec.AppendInt(append(b, byte(g.Start.Kind)), g.Start.Value)
	}
	if g.Queue != nil {
		b = appendQueue(b, g.Queue)
	}
	return b
}

func readGroup(r *codec.Reader) Group {
	g := Group{Topic: readID(r)}
	g.Address = kernel.GroupAddress{Tenant: r.String(), Kind: kernel.TopicKind(r.Byte()), Group: r.String(), Topic: r.String()}
	var queue, start bool
	r.Flags(&g.Owner, &g.FromStart, &g.Auto, &queue, &start)
	g.FailedLimit, g.AcquiredLimit = int(r.Uint()), int(r.Uint())
	if start {
		g.Start = kernel.Position{Kind: kernel.PositionKind(r.Byte()), Value: r.Int()}
	}
	if queue {
		g.Queue = readQueue(r)
	}
	return g
}

func (op DropGroup) append(b []byte) []byte {
	return codec.AppendString(append(b, op.Topic[:]...), op.Group)
}

func (op PutBinding) append(b []byte) []byte  { return appendBinding(b, &op.Binding) }
func (op DropBinding) append(b []byte) []byte { return appendBinding(b, &op.Binding) }

func appendBinding(b []byte, v *Binding) []byte {
	b = codec.AppendString(b, v.Tenant)
	b = codec.AppendString(b, v.Exchange)
	b = codec.AppendString(b, v.Queue)
	b = codec.AppendString(b, v.Key)
	return codec.AppendArguments(b, v.Arguments)
}

func readBinding(r *codec.Reader, toExchange bool) Binding {
	v := Binding{Tenant: r.String()}
	v.ToExchange = toExchange
	v.Exchange, v.Queue, v.Key = r.String(), r.String(), r.String()
	v.Arguments = r.Arguments()
	return v
}

func (op TakeProducers) append(b []byte) []byte { return codec.AppendInt(b, op.Count) }
func (op setProducers) append(b []byte) []byte  { return codec.AppendInt(b, op.next) }

// appendQueue leaves out Owner: a queue that belongs to a connection does not
// outlive the process.
func appendQueue(b []byte, q *kernel.Queue) []byte {
	b = append(b, byte(q.Type))
	b = codec.AppendFlags(b, q.Durable, q.AutoDelete, q.Exclusive)
	return codec.AppendArguments(b, q.Arguments)
}

func readQueue(r *codec.Reader) *kernel.Queue {
	q := &kernel.Queue{Type: kernel.QueueType(r.Byte())}
	r.Flags(&q.Durable, &q.AutoDelete, &q.Exclusive)
	q.Arguments = r.Arguments()
	return q
}

func readID(r *codec.Reader) (id kernel.TopicID) {
	copy(id[:], r.Bytes(len(id)))
	return id
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func instant(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
