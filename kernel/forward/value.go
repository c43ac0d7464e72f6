package forward

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"
	"unsafe"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// reader reads the body of a frame.
type reader struct{ codec.Reader }

func read(body []byte) *reader { return &reader{codec.Reader{B: body}} }

// err is what is wrong with the body, with the kind of frame.
func (r *reader) done(k kind) error {
	if err := r.Done(); err != nil {
		return fmt.Errorf("%w: kind %d: %w", errMalformed, k, err)
	}
	return nil
}

func (r *reader) flag() bool { return r.Byte() != 0 }

// alias reads a string that lives as long as the body.
func (r *reader) alias() string {
	b := r.Bytes(r.Count())
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// bytes reads what appendBytes has written; it aliases the body.
func (r *reader) bytes() []byte {
	n := r.Uint()
	if n == 0 {
		return nil
	}
	if n-1 > uint64(len(r.B)) {
		r.Bytes(-1)
		return nil
	}
	return r.Bytes(int(n - 1))
}

// appendBytes appends bytes that may be nil.
func appendBytes(b, p []byte) []byte {
	if p == nil {
		return codec.AppendUint(b, 0)
	}
	return append(codec.AppendUint(b, uint64(len(p))+1), p...)
}

// number reads a number that clients give, of 16 bits.
func (r *reader) number() uint16 {
	n := r.Uint()
	if n > math.MaxUint16 {
		r.Bytes(-1)
		return 0
	}
	return uint16(n)
}

// int reads a number that fits an int32.
func (r *reader) int() int {
	n := r.Int()
	if n < math.MinInt32 || n > math.MaxInt32 {
		r.Bytes(-1)
		return 0
	}
	return int(n)
}

// The kinds of error.
const (
	errNone byte = iota
	errKernel
	errCanceled
	errDeadline
	errNoTarget // errUnmatched
)

// appendError appends an error. What is no kernel.Error, or has one within, becomes one
// with its code and text.
func appendError(b []byte, err error) []byte {
	if err == nil {
		return append(b, errNone)
	}
	e, exact := err.(*kernel.Error)
	switch {
	case exact:
	case err == errUnmatched:
		return append(b, errNoTarget)
	case errors.Is(err, context.Canceled):
		return append(b, errCanceled)
	case errors.Is(err, context.DeadlineExceeded):
		return append(b, errDeadline)
	default:
		e = kernel.Errorf(kernel.CodeOf(err), "", "", "%v", err)
	}
	b = append(b, errKernel, byte(e.Code))
	b = codec.AppendString(b, e.Object)
	b = codec.AppendString(b, e.Name)
	return codec.AppendString(b, e.Detail)
}

func (r *reader) error() error {
	switch k := r.Byte(); k {
	case errNone:
		return nil
	case errCanceled:
		return context.Canceled
	case errDeadline:
		return context.DeadlineExceeded
	case errNoTarget:
		return errUnmatched
	case errKernel:
		return &kernel.Error{Code: kernel.Code(r.Byte()), Object: r.String(), Name: r.String(), Detail: r.String()}
	default:
		r.Bytes(-1)
		return nil
	}
}

// address is a net.Addr of another node that is no TCP address.
type address struct{ network, text string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.text }

func appendAddr(b []byte, a net.Addr) []byte {
	if a == nil {
		return codec.AppendString(codec.AppendString(b, ""), "")
	}
	return codec.AppendString(codec.AppendString(b, a.Network()), a.String())
}

func (r *reader) addr() net.Addr {
	network, text := r.String(), r.String()
	if network == "" && text == "" {
		return nil
	}
	if network == "tcp" {
		if ap, err := netip.ParseAddrPort(text); err == nil {
			return net.TCPAddrFromAddrPort(ap)
		}
	}
	return address{network, text}
}

func appendIdentity(b []byte, id kernel.Identity) []byte {
	b = codec.AppendString(codec.AppendString(b, id.User), id.Tenant)
	return codec.AppendFlags(b, id.Anonymous)
}

func (r *reader) identity() kernel.Identity {
	return kernel.Identity{User: r.String(), Tenant: r.String(), Anonymous: r.flag()}
}

func appendInfo(b []byte, i *kernel.ConnectionInfo) []byte {
	for _, s := range []string{string(i.Protocol), i.Name, i.ClientID, i.Version, i.Mechanism, i.Token} {
		b = codec.AppendString(b, s)
	}
	b = appendAddr(appendAddr(b, i.Remote), i.Local)
	b = codec.AppendFlags(b, i.Secure, i.Channels != nil, true, true)
	return codec.AppendInt(codec.AppendArguments(b, i.Properties), int64(i.Heartbeat))
}

// info reads what appendInfo has written. listed says that there are channels to list,
// numbered that the connection's number is wanted, and repeats whether the host knows of
// calls that are made again; earlier versions do not know these.
func (r *reader) info() (i kernel.ConnectionInfo, listed, numbered, repeats bool) {
	i.Protocol = kernel.Protocol(r.String())
	i.Name, i.ClientID, i.Version, i.Mechanism, i.Token = r.String(), r.String(), r.String(), r.String(), r.String()
	i.Remote, i.Local = r.addr(), r.addr()
	r.Flags(&i.Secure, &listed, &numbered, &repeats)
	i.Properties, i.Heartbeat = r.Arguments(), time.Duration(r.Int())
	return i, listed, numbered, repeats
}

func alarmsOf(a *broker.Alarms) []*broker.Alarm {
	return []*broker.Alarm{&a.Disk, &a.Memory, &a.Replicas, &a.Leader}
}

func appendAlarms(b []byte, a *broker.Alarms) []byte {
	for _, one := range alarmsOf(a) {
		if b = codec.AppendFlags(b, one.On); one.On {
			b = codec.AppendString(codec.AppendInt(b, one.Since.UnixNano()), one.Reason)
		}
	}
	return b
}

func (r *reader) alarms() *broker.Alarms {
	a := &broker.Alarms{}
	for _, one := range alarmsOf(a) {
		if r.Flags(&one.On); one.On {
			one.Since, one.Reason = time.Unix(0, r.Int()), r.String()
		}
	}
	return a
}

func appendChannels(b []byte, list []kernel.ChannelStatus) []byte {
	b = codec.AppendUint(b, uint64(len(list)))
	for i := range list {
		c := &list[i]
		for _, n := range []int{c.Number, c.Consumers, c.Unsettled, c.Prefetch} {
			b = codec.AppendInt(b, int64(n))
		}
		b = codec.AppendFlags(b, c.Confirms)
	}
	return b
}

func (r *reader) channels() []kernel.ChannelStatus {
	n := r.Count()
	list := make([]kernel.ChannelStatus, 0, n/5) // five bytes each, at least
	for range n {
		if r.Err() != nil {
			return nil
		}
		list = append(list, kernel.ChannelStatus{Number: r.int(), Consumers: r.int(), Unsettled: r.int(), Prefetch: r.int(), Confirms: r.flag()})
	}
	return list
}
