package amqp

import (
	"reflect"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// What is published through the mapper is shown by it as it was given.
func TestMapperMessages(t *testing.T) {
	given := map[string]any{
		"delivery_mode": int64(2), "priority": int64(7), "timestamp": int64(1700000000), "content_type": "text/plain",
		"correlation_id": "c", "reply_to": "r", "message_id": "m", "type": "t", "app_id": "a", "user_id": "guest",
		"headers": map[string]any{
			"text": "x", "int": int64(1), "float": 1.5, "flag": true, "none": nil,
			"list": []any{int64(1), "2"}, "table": map[string]any{"e": true},
		},
	}
	r, _, err := Mapper{}.Record("amq.direct", "k", given, []byte("body"), "guest")
	if err != nil {
		t.Fatal(err)
	}
	exchange, key, got := Mapper{}.Message(stored(t, r), "q")
	given["timestamp"] = uint64(1700000000)
	if exchange != "amq.direct" || key != "k" || !reflect.DeepEqual(got, given) {
		t.Errorf("%s %s %v", exchange, key, got)
	}
	r, _, err = Mapper{}.Record("", "q", nil, nil, "guest")
	if err != nil {
		t.Fatal(err)
	}
	if _, key, got := (Mapper{}).Message(stored(t, r), "q"); key != "q" || len(got) != 0 {
		t.Errorf("a message without properties: %s %v", key, got)
	}
}

func TestMapperRefuses(t *testing.T) {
	for name, p := range map[string]map[string]any{
		"unknown": {"bogus": int64(1)}, "number for text": {"content_type": int64(1)}, "text for number": {"priority": "1"},
		"too large": {"priority": int64(256)}, "delivery mode": {"delivery_mode": int64(3)}, "somebody else": {"user_id": "other"},
		"expiration": {"expiration": "soon"}, "headers": {"headers": "x"}, "odd value": {"headers": map[string]any{"a": struct{}{}}},
	} {
		if _, _, err := (Mapper{}).Record("", "q", p, nil, "guest"); kernel.CodeOf(err) == kernel.CodeInternal {
			t.Errorf("%s: %v", name, err)
		}
	}
	deep := map[string]any{}
	for range 100 {
		deep = map[string]any{"a": deep}
	}
	if _, err := (Mapper{}).Arguments(deep); kernel.CodeOf(err) != kernel.CodeInvalid {
		t.Errorf("nested too deep: %v", err)
	}
}

func TestMapperDeclarations(t *testing.T) {
	spec := broker.QueueSpec{Name: "q", Durable: true}
	if err := (Mapper{}).Queue(&spec, "/", map[string]any{"x-queue-type": "quorum", "x-retention": int64(5000)}); err != nil {
		t.Fatal(err)
	}
	if spec.Type != kernel.Quorum || spec.Retention == nil || spec.Retention.Age.Milliseconds() != 5000 {
		t.Errorf("%+v", spec)
	}
	err := (Mapper{}).Queue(&spec, "/", map[string]any{"x-no-such": int64(1)})
	if kernel.CodeOf(err) != kernel.CodePrecondition {
		t.Errorf("unknown argument: %v", err)
	}
	given := map[string]any{"a": int64(1), "b": []any{"x", nil}, "c": map[string]any{"d": 1.5}}
	args, err := (Mapper{}).Arguments(given)
	if err != nil {
		t.Fatal(err)
	}
	if got := (Mapper{}).Values(args); !reflect.DeepEqual(got, given) {
		t.Errorf("arguments come back as %v", got)
	}
}
