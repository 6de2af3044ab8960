package tidegate

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Schema gives the JSON schema of a Go type, as encoding/json writes its values: structs, strings, numbers, booleans, slices, arrays, maps
// with string keys, pointers, and what writes itself as text. Properties keep the order of their fields. Fields are required, except
// pointers and those with `omitempty` or `omitzero`. The tag `description` tells the model about a field, and `enum:"a,b"` lists the values
// of a string. A type that holds itself has no schema.
func Schema[T any]() (string, error) {
	object, err := schemaOf(reflect.TypeFor[T](), nil)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(object)
	return string(text), err
}

// object is a JSON object whose members stay in order.
type object []member

type member struct {
	key   string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	text := []byte{'{'}
	for i, m := range o {
		key, _ := json.Marshal(m.key)
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, key...), ':'), value...)
	}
	return append(text, '}'), nil
}

var (
	anyType  = reflect.TypeFor[any]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	timeType = reflect.TypeFor[time.Time]()
	textType = reflect.TypeFor[encoding.TextMarshaler]()
)

// schemaOf describes a type; `outer` are the structs that it is part of.
func schemaOf(t reflect.Type, outer []reflect.Type) (object, error) {
	switch {
	case t == anyType || t == rawType:
		return object{}, nil
	case t == timeType:
		return object{{"type", "string"}, {"format", "date-time"}}, nil
	case t.Implements(textType) || reflect.PointerTo(t).Implements(textType):
		return typed("string"), nil
	}
	switch t.Kind() {
	case reflect.String:
		return typed("string"), nil
	case reflect.Bool:
		return typed("boolean"), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return typed("integer"), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return append(typed("integer"), member{"minimum", 0}), nil
	case reflect.Float32, reflect.Float64:
		return typed("number"), nil
	case reflect.Pointer:
		return schemaOf(t.Elem(), outer)
	case reflect.Slice, reflect.Array:
		return arraySchema(t, outer)
	case reflect.Map:
		return mapSchema(t, outer)
	case reflect.Struct:
		return structSchema(t, outer)
	}
	return nil, fmt.Errorf("%s has no JSON schema", t)
}

func typed(name string) object { return object{{"type", name}} }

func arraySchema(t reflect.Type, outer []reflect.Type) (object, error) {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return typed("string"), nil // base64
	}
	items, err := schemaOf(t.Elem(), outer)
	schema := append(typed("array"), member{"items", items})
	if t.Kind() == reflect.Array {
		schema = append(schema, member{"minItems", t.Len()}, member{"maxItems", t.Len()})
	}
	return schema, err
}

func mapSchema(t reflect.Type, outer []reflect.Type) (object, error) {
	if t.Key().Kind() != reflect.String {
		return nil, fmt.Errorf("%s has no JSON schema: its keys are not strings", t)
	}
	values, err := schemaOf(t.Elem(), outer)
	return append(typed("object"), member{"additionalProperties", values}), err
}

func structSchema(t reflect.Type, outer []reflect.Type) (object, error) {
	for _, o := range outer {
		if o == t {
			return nil, fmt.Errorf("%s has no JSON schema: it holds itself", t)
		}
	}
	fields := fields{properties: object{}, required: []string{}, outer: append(outer[:len(outer):len(outer)], t)}
	if err := fields.add(t); err != nil {
		return nil, err
	}
	return append(typed("object"),
		member{"properties", fields.properties}, member{"required", fields.required}, member{"additionalProperties", false}), nil
}

// fields collects the properties of a struct.
type fields struct {
	properties object
	required   []string
	outer      []reflect.Type
}

func (s *fields) add(t reflect.Type) error {
	for i := range t.NumField() {
		if err := s.addField(t.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func (s *fields) addField(f reflect.StructField) error {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "-" && options == "" || !f.IsExported() && !f.Anonymous:
		return nil
	case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
		return s.add(f.Type)
	case name == "":
		name = f.Name
	}
	schema, err := schemaOf(f.Type, s.outer)
	if err != nil {
		return err
	}
	s.properties = append(s.properties, member{name, annotated(schema, f.Tag)})
	if f.Type.Kind() != reflect.Pointer && !strings.Contains(options, "omit") {
		s.required = append(s.required, name)
	}
	return nil
}

// annotated adds what a field's tags say.
func annotated(schema object, tag reflect.StructTag) object {
	if text := tag.Get("description"); text != "" {
		schema = append(schema, member{"description", text})
	}
	if values := tag.Get("enum"); values != "" {
		schema = append(schema, member{"enum", strings.Split(values, ",")})
	}
	return schema
}
