package amqp

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// TestDeduplicationID: the id is the text of the first header of that name, and the
// header stays one like any other. What has no text is no id.
func TestDeduplicationID(t *testing.T) {
	b := &builder{}
	for _, tc := range []struct {
		table wire.Table
		want  string
	}{
		{wire.Table{{Name: kernel.HeaderDedup, Value: "a"}}, "a"},
		{wire.Table{{Name: "x", Value: "y"}, {Name: kernel.HeaderDedup, Value: int32(-7)}, {Name: "z", Value: true}}, "-7"},
		{wire.Table{{Name: kernel.HeaderDedup, Value: "a"}, {Name: kernel.HeaderDedup, Value: "b"}}, "a"},
		{wire.Table{{Name: kernel.HeaderDedup, Value: ""}}, ""},
		{wire.Table{{Name: kernel.HeaderDedup, Value: nil}}, ""},
		{wire.Table{{Name: kernel.HeaderDedup, Value: wire.Table{}}}, ""},
		{wire.Table{{Name: "x-deduplication-ids", Value: "a"}}, ""},
		{nil, ""},
	} {
		p := wire.Properties{Flags: wire.HasHeaders, Headers: wire.AppendTable(nil, tc.table)[4:]}
		must(t, b.build(&wire.BasicPublish{RoutingKey: "q"}, &p, nil, "guest"))
		if string(b.id) != tc.want {
			t.Errorf("%v: id %q", tc.table, b.id)
		}
		for _, h := range b.record.Headers {
			if h.Key == kernel.HeaderDedup && tc.want != "" && string(h.Value) != tc.want && string(h.Value) != "b" {
				t.Errorf("%v: header %q", tc.table, h.Value)
			}
		}
	}
	_, opt, err := Mapper{}.Record("", "q", map[string]any{"headers": map[string]any{kernel.HeaderDedup: "a"}}, nil, "guest")
	if err != nil || opt.ID != kernel.NewDedupID([]byte("a")) {
		t.Errorf("over HTTP: %x, %v", opt.ID, err)
	}
}

// TestDeduplicationWindow: the argument is a number of milliseconds, 0 is off.
func TestDeduplicationWindow(t *testing.T) {
	for _, tc := range []struct {
		name string
		v    any
		want string // what is wrong with it
	}{
		{"q", int32(0), ""},
		{"q", int64(60_000), ""},
		{"q", int32(-1), "{value_negative,-1}"},
		{"q", int64(maxTTL + 1), "{value_too_large,315360000001}"},
		{"q", "5m", "\"expected integer, got longstr\""},
		{"$share/g/q", int32(1), "the messages are kept by the topic of a share address"},
	} {
		spec := broker.QueueSpec{Name: tc.name, Durable: true}
		err := queueArguments(wire.Table{{Name: argDedupWindow, Value: tc.v}}, &spec, "/")
		if tc.want == "" {
			if err != nil || len(spec.Arguments) != 1 || spec.Retention != nil {
				t.Errorf("%v: %v, %+v", tc.v, err, spec)
			}
			continue
		}
		want := "invalid arg 'x-deduplication-window' for queue '" + tc.name + "' in vhost '/': " + tc.want
		if err == nil || err.Error() != faultf(wire.PreconditionFailed, "%s", want).Error() {
			t.Errorf("%v: %v", tc.v, err)
		}
	}
}
