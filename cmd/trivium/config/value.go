package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// off as an address turns a listener off.
const off = "off"

// Address is where a listener binds, host:port, or off.
type Address string

// Off reports whether there is no such listener.
func (a Address) Off() bool { return a == off }

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *Address) UnmarshalText(b []byte) error {
	addr := string(b)
	if addr != off {
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			return fmt.Errorf("%q is neither host:port nor off", addr)
		}
		if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
			return fmt.Errorf("%q has no valid port", addr)
		}
	}
	*a = Address(addr)
	return nil
}

// Networks are IP networks; a lone address is a network of one.
type Networks []netip.Prefix

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *Networks) UnmarshalText(b []byte) error {
	var all Networks
	for _, text := range split(string(b)) {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			ip, errIP := netip.ParseAddr(text)
			if errIP != nil {
				return fmt.Errorf("%q is no network such as 10.0.0.0/8", text)
			}
			p = netip.PrefixFrom(ip, ip.BitLen())
		}
		all = append(all, p.Masked())
	}
	*n = all
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (n Networks) MarshalText() ([]byte, error) {
	texts := make([]string, len(n))
	for i, p := range n {
		texts[i] = p.String()
	}
	return []byte(strings.Join(texts, ",")), nil
}

// Bytes is a number of bytes; texts may end in KiB, MiB, GiB or TiB. Those are all units
// there are: MB means 2^20 bytes to some and 10^6 to others.
type Bytes int64

var byteUnits = []struct {
	name string
	size Bytes
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Bytes) UnmarshalText(text []byte) error {
	number, unit := string(text), Bytes(1)
	for _, u := range byteUnits {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > int64(1<<62/unit) {
		return fmt.Errorf("%q is no size: a number with KiB, MiB, GiB or TiB, or of bytes", text)
	}
	*b = Bytes(n) * unit
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (b Bytes) MarshalText() ([]byte, error) {
	for _, u := range byteUnits {
		if b >= u.size && b%u.size == 0 && u.size > 1 {
			return []byte(strconv.FormatInt(int64(b/u.size), 10) + u.name), nil
		}
	}
	return []byte(strconv.FormatInt(int64(b), 10)), nil
}

// duration reads a duration: one with units, as in Go, or a whole number of seconds.
func duration(text string) (time.Duration, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && max(n, -n) <= int64(math.MaxInt64/time.Second) {
		return time.Duration(n) * time.Second, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration: such as 500ms, 10s or 1h30m, or a number of seconds", text)
	}
	return d, nil
}

// wholeSeconds refuses a duration that a protocol cannot tell a client.
func wholeSeconds(p *problems, setting string, d time.Duration) {
	if d%time.Second != 0 {
		p.add(setting, "%v is no whole number of seconds", d)
	}
}

// split cuts a list.
func split(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

type textValue interface{ UnmarshalText([]byte) error }

// parse sets a field from its text.
func parse(f reflect.Value, text string) error {
	switch v := f.Addr().Interface().(type) {
	case textValue:
		return v.UnmarshalText([]byte(text))
	case *time.Duration:
		d, err := duration(text)
		if err != nil {
			return err
		}
		*v = d
	case *string:
		*v = text
	case *[]string:
		*v = split(text)
	case *bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		*v = b
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		*v = n
	default:
		panic("config: a field of type " + f.Type().String())
	}
	return nil
}

// format is the reverse of parse.
func format(f reflect.Value) string {
	switch v := f.Interface().(type) {
	case interface{ MarshalText() ([]byte, error) }:
		b, _ := v.MarshalText() // those here do not fail
		return string(b)
	case []string:
		return strings.Join(v, ",")
	default:
		return fmt.Sprint(v)
	}
}

// compare says whether the field's value is less than, equal to or more than
// the bound in text.
func compare(f reflect.Value, bound string) int {
	b := reflect.New(f.Type()).Elem()
	if err := parse(b, bound); err != nil {
		panic("config: bound " + bound + ": " + err.Error())
	}
	return int(min(max(f.Int()-b.Int(), -1), 1))
}
