package route

import "github.com/trivium-mq/trivium/kernel"

// CheckExchange returns CodeInvalid if the type is unknown or an argument does
// not fit it.
func CheckExchange(x *kernel.Exchange) error {
	bad := func(format string, args ...any) error {
		return kernel.Errorf(kernel.CodeInvalid, "exchange", x.Name, format, args...)
	}
	switch x.Type {
	case kernel.Direct, kernel.Fanout, kernel.Topics:
	default:
		if !dynamic(x.Type) {
			return bad("unknown exchange type '%s'", x.Type)
		}
	}
	hashed := 0
	for _, a := range x.Arguments {
		text, ok := a.Value.(string)
		switch a.Name {
		case kernel.ArgAlternate:
		case kernel.ArgHashHeader, kernel.ArgHashProperty:
			if hashed++; x.Type != kernel.ConsistentHash {
				return bad("argument '%s' of exchange '%s' does not fit its type", a.Name, x.Name)
			}
			if _, known := hashProperties[text]; ok && !known && a.Name == kernel.ArgHashProperty {
				return bad("Unsupported property: %s", text)
			}
		default:
			return bad("argument '%s' of exchange '%s' is not supported", a.Name, x.Name)
		}
		if !ok || text == "" && a.Name == kernel.ArgHashProperty { // no alternate is one that leads nowhere
			return bad("argument '%s' of exchange '%s' is not a text", a.Name, x.Name)
		}
	}
	if hashed > 1 {
		return bad("hash-header and hash-property are mutually exclusive")
	}
	return nil
}

// CheckBinding returns CodeInvalid if a binding's key or arguments mean nothing
// to an exchange of that type.
func CheckBinding(kind kernel.ExchangeType, b *kernel.Binding) error {
	switch kind {
	case kernel.Headers:
		_, err := newPattern(b.Arguments)
		return err
	case kernel.ConsistentHash:
		switch n, ok := weightOf(b.Key); {
		case !ok:
			return kernel.Errorf(kernel.CodeInvalid, "", "", "The binding key must be an integer: %q", b.Key)
		case n < 1:
			return kernel.Errorf(kernel.CodeInvalid, "", "", "The binding key must be greater than 0")
		}
	case kernel.LocalRandom:
		if b.Key != "" || b.ToExchange {
			return kernel.Errorf(kernel.CodeInvalid, "", "", "a binding of an exchange of type '%s' is to a queue and has no key", kind)
		}
	}
	return nil
}
