package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// protocol is the front-end's name in listings and counters.
const protocol = "http"

// call is one request below /api on its way.
type call struct {
	s    *Server
	w    http.ResponseWriter
	r    *http.Request
	args []string // the names in the path, decoded
	user kernel.User
}

// remote is where the request comes from.
func (c *call) remote() net.Addr {
	addr, _ := c.r.Context().Value(remoteKey{}).(net.Addr)
	return addr
}

// connect enters a tenant as the user. The caller closes what it gets.
func (c *call) connect(vhost string) (*broker.Conn, error) {
	return c.s.node.Connect(kernel.Identity{User: c.user.Name, Tenant: vhost}, c.info(), nil)
}

// operate enters a tenant without regard to permissions. The caller closes what
// it gets.
func (c *call) operate(vhost string) (*broker.Conn, error) {
	return c.s.node.Operate(kernel.Identity{User: c.user.Name, Tenant: vhost}, c.info())
}

func (c *call) info() kernel.ConnectionInfo {
	local, _ := c.r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return kernel.ConnectionInfo{
		Protocol: protocol, Name: fmt.Sprintf("%v -> %v", c.remote(), local), Remote: c.remote(), Local: local,
	}
}

// within calls fn with a connection to a tenant.
func (c *call) within(vhost string, fn func(*broker.Conn) error) error {
	conn, err := c.connect(vhost)
	if err != nil {
		return err
	}
	defer conn.Close()
	return fn(conn)
}

// Bounds of bodies, in bytes.
const (
	smallBody = 64 << 10
	largeBody = 32 << 20
)

// read decodes the body, an object, into v. An empty body leaves v alone.
func (c *call) read(v any) error {
	raw, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, smallBody))
	if err != nil {
		return unread(err, smallBody)
	}
	return decode(raw, v)
}

// unread says why a body was not read.
func unread(err error, limit int64) error {
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return &refusal{http.StatusRequestEntityTooLarge, "bad_request", fmt.Sprintf("the body is larger than %d bytes", limit)}
	}
	return badRequest("the body could not be read")
}

func decode(raw []byte, v any) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return nil
	}
	if raw[0] != '{' || !json.Valid(raw) {
		return badRequest("not_json")
	}
	if err := json.Unmarshal(raw, v); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return badRequest(mismatch(wrong))
		}
		return badRequest(err.Error())
	}
	return nil
}

// mismatch says which field has a value of the wrong type.
func mismatch(wrong *json.UnmarshalTypeError) string {
	kind, _, _ := strings.Cut(wrong.Value, " ") // "number 1.5"
	article := "a"
	if kind == "array" || kind == "object" {
		article = "an"
	}
	if wrong.Field == "" {
		return fmt.Sprintf("%s %s does not fit here", article, kind)
	}
	return fmt.Sprintf("'%s' may not be %s %s", wrong.Field, article, kind)
}

// answer sends a body in JSON.
func (c *call) answer(body any) error {
	answer(c.w, http.StatusOK, body)
	return nil
}

// empty sends a status without a body.
func (c *call) empty(status int) {
	c.w.Header().Set("Cache-Control", "no-cache")
	c.w.WriteHeader(status)
}

// put answers a PUT: 201 for what is new, else 204.
func (c *call) put(fresh bool) error {
	if fresh {
		c.empty(http.StatusCreated)
	} else {
		c.empty(http.StatusNoContent)
	}
	return nil
}

// gone answers a DELETE.
func (c *call) gone() error {
	c.empty(http.StatusNoContent)
	return nil
}

// flag is a truth value, which clients also send as a text.
type flag bool

// UnmarshalJSON implements json.Unmarshaler.
func (f *flag) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "true", `"true"`:
		*f = true
	case "false", `"false"`, "null", `""`:
		*f = false
	default:
		return fmt.Errorf("%.20s is neither true nor false", b)
	}
	return nil
}

// whole is a whole number, which clients also send as a text.
type whole int

// UnmarshalJSON implements json.Unmarshaler.
func (n *whole) UnmarshalJSON(b []byte) error {
	v, err := strconv.Atoi(string(bytes.Trim(b, `"`)))
	if err != nil {
		return fmt.Errorf("%.20s is no whole number", b)
	}
	*n = whole(v)
	return nil
}

// values are a JSON object with whole numbers as int64.
type values map[string]any

// UnmarshalJSON implements json.Unmarshaler. An empty array is an empty object,
// as RabbitMQ writes it.
func (v *values) UnmarshalJSON(b []byte) error {
	if string(bytes.TrimSpace(b)) == "[]" {
		*v = values{}
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var m map[string]any
	if err := d.Decode(&m); err != nil {
		return fmt.Errorf("an object is needed: %w", err)
	}
	for name := range m {
		m[name] = number(m[name])
	}
	*v = m
	return nil
}

// number turns the numbers within a value into int64 where they are whole, else
// into float64.
func number(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n
		}
		f, err := v.Float64()
		if err != nil || math.IsInf(f, 0) {
			return v.String()
		}
		return f
	case map[string]any:
		for name := range v {
			v[name] = number(v[name])
		}
	case []any:
		for i := range v {
			v[i] = number(v[i])
		}
	}
	return v
}
