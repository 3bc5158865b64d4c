import js from "@eslint/js";
import checkFile from "eslint-plugin-check-file";
import jsxA11y from "eslint-plugin-jsx-a11y";
import reactHooks from "eslint-plugin-react-hooks";
import tseslint from "typescript-eslint";

/** Top to bottom: a folder may import only from the ones after it. */
const LAYERS = ["app", "pages", "components", "hooks", "api", "lib"];

const oneWayImports = LAYERS.slice(1).map((folder, index) => ({
  files: [`src/${folder}/**/*.{ts,tsx}`],
  rules: {
    "no-restricted-imports": [
      "error",
      {
        patterns: LAYERS.slice(0, index + 1).map((above) => ({
          group: [`@/${above}`, `@/${above}/*`],
          message: `src/${folder} must not import from src/${above}.`,
        })),
      },
    ],
  },
}));

/** Within a folder imports are relative to the file ("./x"); everywhere else they begin with "@/". */
const noParentImports = {
  files: ["src/**/*.{ts,tsx}"],
  rules: {
    "no-restricted-syntax": [
      "error",
      { selector: "ImportDeclaration[source.value=/^\\.\\./]", message: 'Import from "@/…" instead of "../…".' },
    ],
  },
};

export default tseslint.config(
  { ignores: ["dist", "node_modules", "src/api/schema.d.ts"] },
  js.configs.recommended,
  {
    files: ["**/*.{ts,tsx}"],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      "@typescript-eslint/restrict-template-expressions": ["error", { allowNumber: true }],
      "@typescript-eslint/consistent-type-definitions": ["error", "interface"],
      "@typescript-eslint/no-confusing-void-expression": ["error", { ignoreArrowShorthand: true }],
    },
  },
  reactHooks.configs.flat.recommended,
  jsxA11y.flatConfigs.strict,
  {
    plugins: { "check-file": checkFile },
    files: ["src/**/*"],
    rules: {
      "check-file/filename-naming-convention": ["error", { "**/*": "KEBAB_CASE" }, { ignoreMiddleExtensions: true }],
      "check-file/folder-naming-convention": ["error", { "src/**/": "KEBAB_CASE" }],
      "max-lines": ["error", 600],
      "max-lines-per-function": ["error", { max: 60, skipBlankLines: true, skipComments: true, IIFEs: true }],
    },
  },
  { files: ["src/**/*.test.ts"], rules: { "max-lines-per-function": "off" } },
  noParentImports,
  ...oneWayImports,
);
