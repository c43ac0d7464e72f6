package forward

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

func appendExchange(b []byte, x *kernel.Exchange) []byte {
	for _, s := range []string{x.Tenant, x.Name, string(x.Type)} {
		b = codec.AppendString(b, s)
	}
	return codec.AppendArguments(codec.AppendFlags(b, x.Durable, x.AutoDelete, x.Internal), x.Arguments)
}

func (r *reader) exchange() (x kernel.Exchange) {
	x.Tenant, x.Name, x.Type = r.String(), r.String(), kernel.ExchangeType(r.String())
	r.Flags(&x.Durable, &x.AutoDelete, &x.Internal)
	x.Arguments = r.Arguments()
	return x
}

func appendQueueSpec(b []byte, q *broker.QueueSpec) []byte {
	b = append(codec.AppendString(b, q.Name), byte(q.Type))
	b = codec.AppendFlags(b, q.Durable, q.Exclusive, q.AutoDelete, q.Again, q.Retention != nil)
	if t := q.Retention; t != nil {
		b = appendRetention(b, t)
	}
	b = codec.AppendInt(append(b, byte(q.Start.Kind)), q.Start.Value)
	return codec.AppendArguments(b, q.Arguments)
}

func (r *reader) queueSpec() (q broker.QueueSpec) {
	q.Name, q.Type = r.String(), kernel.QueueType(r.Byte())
	retention := false
	r.Flags(&q.Durable, &q.Exclusive, &q.AutoDelete, &q.Again, &retention)
	if retention {
		t := r.retention()
		q.Retention = &t
	}
	q.Start = kernel.Position{Kind: kernel.PositionKind(r.Byte()), Value: r.Int()}
	q.Arguments = r.Arguments()
	return q
}

func appendQueueInfo(b []byte, q *broker.QueueInfo) []byte {
	b = append(codec.AppendString(b, q.Name), byte(q.Type))
	return codec.AppendInt(codec.AppendInt(codec.AppendInt(b, q.Ready), q.Held), int64(q.Members))
}

func (r *reader) queueInfo() broker.QueueInfo {
	return broker.QueueInfo{Name: r.String(), Type: kernel.QueueType(r.Byte()), Ready: r.Int(), Held: r.Int(), Members: r.int()}
}

func appendBinding(b []byte, x *kernel.Binding) []byte {
	for _, s := range []string{x.Exchange, x.Queue, x.Key} {
		b = codec.AppendString(b, s)
	}
	return codec.AppendFlags(codec.AppendArguments(b, x.Arguments), x.ToExchange)
}

func (r *reader) binding() kernel.Binding {
	return kernel.Binding{Exchange: r.String(), Queue: r.String(), Key: r.String(), Arguments: r.Arguments(), ToExchange: r.flag()}
}

func appendAddress(b []byte, a *kernel.GroupAddress) []byte {
	for _, s := range []string{a.Tenant, a.Group, a.Topic} {
		b = codec.AppendString(b, s)
	}
	return append(b, byte(a.Kind))
}

func (r *reader) address() kernel.GroupAddress {
	return kernel.GroupAddress{Tenant: r.String(), Group: r.String(), Topic: r.String(), Kind: kernel.TopicKind(r.Byte())}
}

// appendMemberOptions appends all but the pool.
func appendMemberOptions(b []byte, o *kernel.MemberOptions) []byte {
	b = codec.AppendFlags(b, o.AutoSettle, o.Exclusive, o.Create, o.FromStart, o.Pull)
	b = codec.AppendString(codec.AppendString(b, o.Session), o.Tag)
	return codec.AppendInt(codec.AppendInt(b, int64(o.Channel)), int64(o.Prefetch))
}

func (r *reader) memberOptions() (o kernel.MemberOptions) {
	r.Flags(&o.AutoSettle, &o.Exclusive, &o.Create, &o.FromStart, &o.Pull)
	o.Session, o.Tag = r.String(), r.String()
	o.Channel, o.Prefetch = r.int(), r.int()
	return o
}
