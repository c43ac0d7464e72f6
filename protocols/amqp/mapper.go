package amqp

import (
	"encoding/base64"
	"errors"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// Mapper gives AMQP's reading of declarations and messages to front-ends that
// speak of them in JSON: what a client may declare and how a message is stored
// is then the same on both ways. Values are nil, bool, int64, float64, string,
// []any and map[string]any. The zero value is ready; safe for concurrent use.
//
// Errors are kernel errors.
type Mapper struct{}

// Queue reads the arguments of a queue declaration into spec: CodePrecondition
// for what AMQP would refuse.
func (Mapper) Queue(spec *broker.QueueSpec, vhost string, args map[string]any) error {
	t, err := tableOf(args, 1)
	if err != nil {
		return err
	}
	if err := queueArguments(t, spec, vhost); err != nil {
		return unfault(err)
	}
	return unfault(checkType(spec, vhost))
}

// Arguments reads the arguments of a binding or an exchange.
func (Mapper) Arguments(args map[string]any) ([]kernel.Argument, error) {
	t, err := tableOf(args, 1)
	return arguments(t), err
}

// Values shows arguments. Bytes that are no text appear in base64.
func (Mapper) Values(args []kernel.Argument) map[string]any {
	out := make(map[string]any, len(args))
	for i := range args {
		out[args[i].Name] = jsonArgument(args[i].Value)
	}
	return out
}

func jsonArgument(v any) any {
	raw, ok := v.(kernel.Raw)
	if !ok {
		return jsonValue(v)
	}
	if len(raw) > 4 { // a table of one field without name, see argument
		if t, err := wire.ReadTable([]byte(raw)[4:]); err == nil && len(t) == 1 {
			return jsonValue(t[0].Value)
		}
	}
	return jsonValue([]byte(raw))
}

// Record makes the record of a message, and says how else it is routed. The
// record's slices alias body.
func (Mapper) Record(exchange, key string, properties map[string]any, body []byte, user string) (*kernel.Record, kernel.PublishOptions, error) {
	var opt kernel.PublishOptions
	if len(exchange) > maxShort || len(key) > maxShort {
		return nil, opt, kernel.Errorf(kernel.CodeInvalid, "", "", "the exchange's name or the routing key is longer than %d bytes", maxShort)
	}
	var p wire.Properties
	for name, v := range properties {
		if err := setProperty(&p, name, v); err != nil {
			return nil, opt, err
		}
	}
	b := &builder{}
	if err := b.build(&wire.BasicPublish{Exchange: exchange, RoutingKey: key}, &p, body, user); err != nil {
		return nil, opt, unfault(err)
	}
	opt.Keys, opt.Fields, opt.ID = b.keys, b, kernel.NewDedupID(b.id)
	return &b.record, opt, nil
}

// Message shows a stored record, read from a topic of that name, as a message.
func (Mapper) Message(v *kernel.View, topic string) (exchange, key string, properties map[string]any) {
	var e encoder
	e.read(v, topic)
	p := &e.props
	properties = map[string]any{}
	for i := range textProperties {
		if t := &textProperties[i]; p.Has(t.flag) {
			properties[jsonNames[t.flag]] = jsonValue(*t.of(p))
		}
	}
	if p.Has(wire.HasExpiration) {
		properties["expiration"] = string(p.Expiration)
	}
	if p.Has(wire.HasDeliveryMode) {
		properties["delivery_mode"] = int64(p.DeliveryMode)
	}
	if p.Has(wire.HasPriority) {
		properties["priority"] = int64(p.Priority)
	}
	if p.Has(wire.HasTimestamp) {
		properties["timestamp"] = p.Timestamp
	}
	if p.Has(wire.HasHeaders) {
		if t, err := wire.ReadTable(p.Headers); err == nil {
			properties["headers"] = jsonValue(t)
		}
	}
	return string(append([]byte{}, e.exchange...)), string(append([]byte{}, e.key...)), properties
}

// jsonNames are the names of the text properties in RabbitMQ's HTTP API.
var jsonNames = map[uint16]string{
	wire.HasContentType: "content_type", wire.HasContentEncoding: "content_encoding", wire.HasCorrelationID: "correlation_id",
	wire.HasReplyTo: "reply_to", wire.HasMessageID: "message_id", wire.HasType: "type", wire.HasUserID: "user_id",
	wire.HasAppID: "app_id", wire.HasClusterID: "cluster_id",
}

// setProperty sets one property by its name in JSON. Unknown ones are refused.
func setProperty(p *wire.Properties, name string, v any) error {
	wrong := func(what string) error {
		return kernel.Errorf(kernel.CodeInvalid, "", "", "property '%s' must be %s", name, what)
	}
	switch name {
	case "headers":
		m, ok := v.(map[string]any)
		if !ok {
			if list, empty := v.([]any); empty && len(list) == 0 {
				return nil // how RabbitMQ writes an empty table
			}
			return wrong("an object")
		}
		t, err := tableOf(m, 1)
		if err != nil {
			return err
		}
		p.Flags |= wire.HasHeaders
		p.Headers = wire.AppendTable(nil, t)[4:]
		return nil
	case "delivery_mode", "priority", "timestamp":
		n, ok := v.(int64)
		if !ok || n < 0 || name != "timestamp" && n > math.MaxUint8 {
			return wrong("a number that fits")
		}
		setNumber(p, name, n)
		return nil
	}
	text, ok := v.(string)
	if n, isNumber := v.(int64); isNumber && name == "expiration" {
		text, ok = sprintf("%d", n), true
	}
	if !ok || len(text) > maxShort {
		return wrong("a text of at most 255 bytes")
	}
	if name == "expiration" {
		p.Flags |= wire.HasExpiration
		p.Expiration = bytesOf(text)
		return nil
	}
	for i := range textProperties {
		if t := &textProperties[i]; jsonNames[t.flag] == name {
			p.Flags |= t.flag
			*t.of(p) = bytesOf(text)
			return nil
		}
	}
	return kernel.Errorf(kernel.CodeInvalid, "", "", "there is no property '%s'", name)
}

func setNumber(p *wire.Properties, name string, n int64) {
	switch name {
	case "delivery_mode":
		p.Flags, p.DeliveryMode = p.Flags|wire.HasDeliveryMode, uint8(n)
	case "priority":
		p.Flags, p.Priority = p.Flags|wire.HasPriority, uint8(n)
	case "timestamp":
		p.Flags, p.Timestamp = p.Flags|wire.HasTimestamp, uint64(n)
	}
}

// tableOf makes a table, sorted by name.
func tableOf(m map[string]any, depth int) (wire.Table, error) {
	if depth > wire.MaxDepth {
		return nil, kernel.Errorf(kernel.CodeInvalid, "", "", "a table nested too deep")
	}
	t := make(wire.Table, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if len(name) > maxShort {
			return nil, kernel.Errorf(kernel.CodeInvalid, "", "", "a name in a table is longer than %d bytes", maxShort)
		}
		v, err := fieldOf(m[name], depth)
		if err != nil {
			return nil, err
		}
		t = append(t, wire.Field{Name: name, Value: v})
	}
	return t, nil
}

func fieldOf(v any, depth int) (any, error) {
	switch v := v.(type) {
	case nil, bool, int64, float64, string:
		return v, nil
	case map[string]any:
		return tableOf(v, depth+1)
	case []any:
		if depth > wire.MaxDepth {
			return nil, kernel.Errorf(kernel.CodeInvalid, "", "", "an array nested too deep")
		}
		a := make(wire.Array, len(v))
		for i := range v {
			var err error
			if a[i], err = fieldOf(v[i], depth+1); err != nil {
				return nil, err
			}
		}
		return a, nil
	}
	return nil, kernel.Errorf(kernel.CodeInvalid, "", "", "a value of type %T has no AMQP form", v)
}

// jsonValue makes a value of a table fit for JSON.
func jsonValue(v any) any {
	switch v := v.(type) {
	case wire.Table:
		out := make(map[string]any, len(v))
		for i := range v {
			if _, twice := out[v[i].Name]; !twice {
				out[v[i].Name] = jsonValue(v[i].Value)
			}
		}
		return out
	case wire.Array:
		out := make([]any, len(v))
		for i := range v {
			out[i] = jsonValue(v[i])
		}
		return out
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
		return base64.StdEncoding.EncodeToString(v)
	case wire.Decimal:
		return float64(int32(v.Value)) / math.Pow10(int(v.Scale))
	case float32:
		return finite(float64(v))
	case float64:
		return finite(v)
	}
	return v
}

// finite is a number that JSON has, else its name.
func finite(f float64) any {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return sprintf("%v", f)
	}
	return f
}

// unfault makes a kernel error of a refusal.
func unfault(err error) error {
	f, ok := errors.AsType[*fault](err)
	if !ok {
		return err
	}
	code := kernel.CodeInvalid
	switch f.code {
	case wire.PreconditionFailed:
		code = kernel.CodePrecondition
	case wire.AccessRefused:
		code = kernel.CodeAccessRefused
	case wire.NotImplemented:
		code = kernel.CodeNotImplemented
	}
	return kernel.Errorf(code, "", "", "%s", f.text)
}
