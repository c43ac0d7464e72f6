package broker

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/kernel/route"
)

// What a node would refuse of something, told without making it: for who makes
// many things and wants all of them or none.

// Check is what PutUser would refuse: CodeInvalidName, CodeInvalid.
func (spec *UserSpec) Check() error {
	if err := kernel.CheckName("user", spec.Name); err != nil {
		return err
	}
	for _, tag := range spec.Tags {
		if err := kernel.CheckName("tag", tag); err != nil {
			return err
		}
	}
	switch {
	case spec.Password != nil:
		return auth.FitPassword(*spec.Password)
	case spec.PasswordHash != nil:
		_, err := auth.ParseHash(*spec.PasswordHash, spec.HashAlgorithm)
		return err
	}
	return nil
}

// CheckPatterns is what PutPermission and PutTopicPermission would refuse of
// their patterns: CodeInvalid.
func CheckPatterns(patterns ...string) error {
	for _, text := range patterns {
		if err := auth.CheckPattern(text); err != nil {
			return err
		}
	}
	return nil
}

// CheckExchange is what DeclareExchange would refuse of an exchange that is not
// there yet: CodeInvalid, CodeInvalidName, CodeAccessRefused.
func CheckExchange(x *kernel.Exchange) error {
	if err := route.CheckExchange(x); err != nil {
		return err
	}
	return kernel.CheckNewName("exchange", x.Name)
}

// PredeclaredExchange returns the type of an exchange that every tenant has from
// the start.
func PredeclaredExchange(name string) (kernel.ExchangeType, bool) { return route.PredeclaredType(name) }

// CheckBinding is what Bind would refuse of a binding from an exchange of a type:
// CodeInvalid, CodeInvalidName, CodeAccessRefused.
func CheckBinding(kind kernel.ExchangeType, b *kernel.Binding) error {
	if err := checkBinding(b); err != nil {
		return err
	}
	return route.CheckBinding(kind, b)
}
